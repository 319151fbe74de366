"""Differences between the engines that are meant, each with its reason; all others are faults of one of them."""

from __future__ import annotations

Step = list
_TAKEN = {  # what onnxruntime says where it takes less -> why this project takes it
    "Input must be a list of dictionaries": "tuples, memoryviews and arrays of other modules are feeds",
    "Unable to handle object of type": "numbers, and what exports an array, are feeds",
    "must not be empty": "as above",
    "Creation of OrtValues is currently only": "strings, and types that numpy lacks, have OrtValues",
    "No corresponding Numpy type": "types that numpy lacks are arrays of ml_dtypes",
    "can't be converted to MLDataType": "as above; another class for types that ONNX lacks",
    "Only binding": "strings, sequences and optionals can be bound",
    "Unable to create OrtValue": "what is a feed can be bound",
    "_get_c_value": "an array is a feed, an OrtValue is not needed",
    "incompatible function arg": "what has the names asked for; a name of another type is told as that",
    "CreateSequenceOfTensors": "lists of numbers are tensors of a sequence",
    "should be given as array": "a tuple is a sequence",
    "Could not find an implementation": "all types are run",
    "Failed to find NodeArg": "an initializer that is an input can be bound",
    "Failed to find input with name": "an input with a default can be a list",
    "Size of dictionary is empty": "an empty map has the default of every key",
    "codec can't": "arrays of bytes are cut at their length; lone surrogates are kept",
    "truth value of an array": "an array of names is a sequence of them",
    "memory arena shrink list": "there is no arena to shrink",
    "expected: (tensor(Float8": "arrays of ml_dtypes are tensors of their type",
    "Unexpected value type": "of a wrong type",
    "Key type must be": "of a wrong type",
    "Could not create tensor from given": "the callback hears of it",
    "CreateGenericMLValue": "the callback hears of it",
    "IsTensorSequence() was false": "a missing input is told as that",
    "Missing Input": "a missing input is told as that",
    "but received a tensor": "an array is a sequence of its rows",
    "SystemError : 2": "a file that cannot be written is Fail",
    "Exiting due to terminate": "feeds and names are looked at before the run is stopped",
    "IsTensor() was false": "sequences in vectors",
    "has no attribute '_ortvalue'": "what is no OrtValue is told as that",
    "We do not support type": "what files in ORT format hold not is told as not implemented",
    "not found from the table": "a file that no memory was given for is read where it lies",
    "External data path validation failed": "options that a session gives keep the files in memory",
}
_REFUSED = {  # what this project says where it takes less -> why
    "is not a name": "bytes are no name",
    "expected names of outputs": "bytes are no name",
    "Invalid input name: b'": "bytes are no name",
    "Invalid input name: zz": "a name that is none is refused, whether it would be read or not",
    "Missing Input": "None is no tensor, whether anybody reads it or not",
    "Unexpected input data type. Actual: (numpy": "records are no texts",
    "Unable to handle object of type <class 'list'>": "lists are no texts",
    "Got invalid dimensions for input: o": "a size that the options fix holds in optionals, too",
    "the computed output shape for this run": "memory of another size is refused for inputs that are outputs, too",
    "has no attribute": "sequences have no rank: a fault of the program",
    "over a read-only array": "an array that is read-only stays so, behind an OrtValue, too",
}


def reason_of(program: dict, theirs: Step, ours: Step) -> str | None:
    """Return why two outcomes of a step differ; nothing (``""``) where they do not, ``None`` where nobody knows."""
    if theirs[1] == "ok" == ours[1]:
        return "" if theirs[2] == ours[2] else _of_values(program, theirs, ours)
    if theirs[1] == "ok":
        return _found(_REFUSED, ours[3])
    if ours[1] == "ok" or theirs[2][0] not in ours[2]:
        if " adapted " in theirs[0] and "Required inputs" in theirs[3]:
            return "an adapter may give an input that has no default"
        if theirs[1] == "error" == ours[1] and "is not a name" in ours[3]:
            return "bytes are no name"
        return _found(_TAKEN, theirs[3])
    return ""


def _found(reasons: dict[str, str], text: str) -> str | None:
    return next((reason for words, reason in reasons.items() if words in text), None)


def _of_values(program: dict, theirs: Step, ours: Step) -> str | None:
    label = theirs[0]
    if label.startswith("read options."):
        return None
    if label == "profile":
        return "events of runs that one engine refuses"
    if label == "facts":
        return _of_facts(theirs[2], ours[2])
    if label == "optimized":
        return "inferred sizes take the places of names"
    if label.startswith("value ") and _without_flags(theirs[2]) == _without_flags(ours[2]):
        return "an array that is read-only stays so; parts of sparse tensors can be written"
    if program["model"].startswith("sequence") and ("binding_again" in label or "bindings_of_threads" in label):
        return "onnxruntime adds to the sequence that the last run of a binding gave"
    if "in_the_background" in label:
        return "a callback is called also where results or feeds cannot be converted"
    if "bytes_array" in label or "unicode_array" in label:
        return "texts of fixed length are cut at their length and keep zeros inside"
    if "bound_memory" in label and program["model"].startswith("through"):
        return "an input that is an output is copied into bound memory"
    if "float8" in program["model"] or "bfloat16" in program["model"] or "int4" in program["model"]:
        return "types that numpy lacks are arrays of ml_dtypes, not of bits"
    if "narrowed" in program["model"]:
        return "as above"
    return None


def _of_facts(theirs: list, ours: list) -> str | None:
    for place, (wanted, found) in enumerate(zip(theirs[1], ours[1], strict=True)):
        if place in (0, 1):  # inputs and outputs: names and types are the same, sizes may be known
            pairs = zip(wanted[1], found[1], strict=True)
            if any(a[1][:2] != b[1][:2] for a, b in pairs):
                return None
        elif wanted != found and place not in (5, 6, 9):  # providers, their options, and an input as text
            return None
    return "inferred sizes, and sizes that the options fix; providers that are here, and their options"


def _without_flags(described: object) -> object:
    if isinstance(described, list) and described[:1] == ["array"]:
        return [*described[:4], *described[5:]]
    return [_without_flags(each) for each in described] if isinstance(described, list) else described
