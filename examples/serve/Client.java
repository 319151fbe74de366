// A client of the Open Inference Protocol in Java: HttpClient, and tensors as bytes behind the JSON.
//
//     java Client.java http://127.0.0.1:8000 digits image 1,1,8,8        (Java 17 or newer)
//
// It asks a model for one FP32 input of zeros and prints the answer: its JSON, and the first numbers behind it.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

public class Client {
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], model = arguments[1], input = arguments[2], shape = arguments[3];
        int count = Arrays.stream(shape.split(",")).mapToInt(Integer::parseInt).reduce(1, (a, b) -> a * b);
        byte[] header = ("{\"inputs\":[{\"name\":\"" + input + "\",\"datatype\":\"FP32\",\"shape\":[" + shape
                + "],\"parameters\":{\"binary_data_size\":" + 4 * count + "}}],"
                + "\"parameters\":{\"binary_data_output\":true}}").getBytes(StandardCharsets.UTF_8);
        ByteBuffer body = ByteBuffer.allocate(header.length + 4 * count).order(ByteOrder.LITTLE_ENDIAN);
        body.put(header);
        for (int i = 0; i < count; i++) body.putFloat(0f);

        HttpRequest request = HttpRequest.newBuilder(URI.create(address + "/v2/models/" + model + "/infer"))
                .header("Content-Type", "application/octet-stream")
                .header("Inference-Header-Content-Length", Integer.toString(header.length))
                .POST(HttpRequest.BodyPublishers.ofByteArray(body.array()))
                .build();
        HttpResponse<byte[]> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofByteArray());
        if (answer.statusCode() != 200) {
            System.err.println(new String(answer.body(), StandardCharsets.UTF_8));
            System.exit(1);
        }
        int length = Integer.parseInt(answer.headers().firstValue("Inference-Header-Content-Length").orElseThrow());
        System.out.println(new String(answer.body(), 0, length, StandardCharsets.UTF_8));
        ByteBuffer numbers = ByteBuffer.wrap(answer.body(), length, answer.body().length - length).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < 10 && numbers.remaining() >= 4; i++) System.out.print(numbers.getFloat() + " ");
        System.out.println();
    }
}
