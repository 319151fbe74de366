// A client of the Open Inference Protocol in JavaScript: `fetch`, and tensors as bytes behind the JSON.
//
//     node client.mjs http://127.0.0.1:8000 digits          (Node 18 or newer; the same code runs in a browser)
//
// It asks a model of FP32 inputs for zeros, once with JSON and once with bytes, and prints what came back.

const [address = "http://127.0.0.1:8000", model = "digits"] = process.argv.slice(2);

async function answered(path, options) {
  const answer = await fetch(`${address}${path}`, options);
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer;
}

/** Run a model on {name: {shape, data: Float32Array}}, and return {name: {shape, data}}. */
export async function infer(name, inputs) {
  const parts = [];
  const described = Object.entries(inputs).map(([input, { shape, data }]) => {
    parts.push(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return { name: input, datatype: "FP32", shape, parameters: { binary_data_size: data.byteLength } };
  });
  const header = new TextEncoder().encode(JSON.stringify({ inputs: described, parameters: { binary_data_output: true } }));
  const answer = await answered(`/v2/models/${name}/infer`, {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": String(header.length) },
    body: new Blob([header, ...parts]),
  });
  const body = await answer.arrayBuffer();
  let at = Number(answer.headers.get("Inference-Header-Content-Length"));
  const { outputs } = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 0, at)));
  const found = {};
  for (const { name: output, datatype, shape, parameters } of outputs) {
    const raw = body.slice(at, at + parameters.binary_data_size); // a copy: its floats lie aligned
    found[output] = { shape, data: datatype === "FP32" ? new Float32Array(raw) : new Uint8Array(raw) };
    at += parameters.binary_data_size;
  }
  return found;
}

const { inputs } = await (await answered(`/v2/models/${model}`)).json();
const zeros = inputs.map(({ name, shape }) => {
  const sizes = shape.map((size) => (size < 0 ? 1 : size));
  return { name, shape: sizes, data: new Float32Array(sizes.reduce((a, b) => a * b, 1)) };
});
const json = await answered(`/v2/models/${model}/infer`, {
  method: "POST",
  body: JSON.stringify({ inputs: zeros.map(({ name, shape, data }) => ({ name, shape, datatype: "FP32", data: [...data] })) }),
});
const byJson = (await json.json()).outputs;
const byBytes = await infer(model, Object.fromEntries(zeros.map(({ name, ...tensor }) => [name, tensor])));
for (const { name, shape, data } of byJson) {
  const same = data.every((value, i) => Math.fround(value) === byBytes[name].data[i]);
  console.log(`${name} [${shape}]: ${data.slice(0, 10).join(" ")}${same ? "" : " (bytes differ!)"}`);
  if (!same) process.exitCode = 1;
}
