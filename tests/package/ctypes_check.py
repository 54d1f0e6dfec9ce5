# The C API from Python, by ctypes alone, and with NumPy where it is: arguments are the library, a model of
# softmax(x W^T + b) with W = [[1, 0], [0, 1], [1, 1]] and b = [0, 0, -1], and nothing else. Prints "ok" at the end.
import ctypes
import math
import sys

library = ctypes.CDLL(sys.argv[1])
library.bindery_last_error.restype = ctypes.c_char_p
library.bindery_version.restype = ctypes.c_char_p


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("dtype", DataType), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


class ManagedArray(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(ManagedArray))
ManagedArray._fields_ = [("array", Array), ("manager", ctypes.c_void_p), ("deleter", Deleter)]


class Input(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("rank", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("dtype", DataType)]


FLOAT32 = DataType(2, 32, 1)


def check(status):
    if status != 0:
        raise RuntimeError("status %d: %s" % (status, library.bindery_last_error().decode()))


def softmax(a, b):
    scores = [math.exp(score) for score in (a, b, a + b - 1)]
    return [score / sum(scores) for score in scores]


def expect(scores, samples):
    wanted = [score for sample in samples for score in softmax(*sample)]
    assert len(scores) == len(wanted), (scores, wanted)
    assert all(abs(got - want) < 1e-6 for got, want in zip(scores, wanted)), (scores, wanted)


model = ctypes.c_void_p()
check(library.bindery_model_load(sys.argv[2].encode(), ctypes.byref(model)))
largest = (ctypes.c_int64 * 2)(8, 2)
described = Input(b"data", 2, largest, FLOAT32)
predictor = ctypes.c_void_p()
check(library.bindery_predictor_create(model, ctypes.byref(described), ctypes.c_size_t(1), None,
                                       ctypes.byref(predictor)))


def predict(tensor):
    output = ctypes.c_void_p()
    names = (ctypes.c_char_p * 1)(b"data")
    inputs = (ctypes.c_void_p * 1)(tensor)
    check(library.bindery_predictor_run(predictor, names, inputs, ctypes.c_size_t(1), ctypes.byref(output),
                                        ctypes.c_size_t(1)))
    return output


# Memory of ours, borrowed.
values = (ctypes.c_float * 4)(0.5, -1, 2, 3)
shape = (ctypes.c_int64 * 2)(2, 2)
memory = Array(ctypes.addressof(values), 1, 0, 2, FLOAT32, shape, None, 0)
tensor = ctypes.c_void_p()
check(library.bindery_tensor_borrow(ctypes.byref(memory), ctypes.byref(tensor)))
output = predict(tensor)
view = Array()
check(library.bindery_tensor_view(output, ctypes.byref(view)))
assert [view.shape[i] for i in range(view.ndim)] == [2, 3]
expect((ctypes.c_float * 6).from_address(view.data)[:], [(0.5, -1), (2, 3)])
values[0] = -0.25  # the same memory: seen by the next call
again = predict(tensor)
check(library.bindery_tensor_view(again, ctypes.byref(view)))
expect((ctypes.c_float * 6).from_address(view.data)[:], [(-0.25, -1), (2, 3)])

# Handed over, and given back once.
deleted = []
handed = ManagedArray(memory, None, Deleter(lambda pointer: deleted.append(True)))
ours = ctypes.c_void_p()
check(library.bindery_tensor_from_dlpack(ctypes.byref(handed), ctypes.byref(ours)))
library.bindery_tensor_free(ours)
assert deleted == [True], deleted

missing = ctypes.c_void_p()
status = library.bindery_model_load(b"no-such-file.pb", ctypes.byref(missing))
assert status == 4 and b"no-such-file.pb" in library.bindery_last_error(), status
assert not missing

try:
    import numpy
except ImportError:
    numpy = None
    print("no NumPy: arrays of ctypes only")

if numpy is not None:
    capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule_name = ctypes.pythonapi.PyCapsule_SetName
    capsule_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    samples = numpy.array([[1, 2], [3, 4], [-1, 0.5]], dtype=numpy.float32)
    capsule = samples.__dlpack__()
    taken = ctypes.c_void_p()
    check(library.bindery_tensor_from_dlpack(ctypes.c_void_p(capsule_pointer(capsule, b"dltensor")),
                                             ctypes.byref(taken)))
    capsule_name(capsule, b"used_dltensor")
    scores = predict(taken)

    class Scores:
        def __dlpack__(self, **_):
            pointer = ctypes.c_void_p()
            check(library.bindery_tensor_to_dlpack(scores, ctypes.byref(pointer)))
            return new_capsule(pointer, b"dltensor", None)

        def __dlpack_device__(self):
            return (1, 0)

    array = numpy.from_dlpack(Scores())
    address = Array()
    check(library.bindery_tensor_view(scores, ctypes.byref(address)))
    assert array.__array_interface__["data"][0] == address.data
    library.bindery_tensor_free(scores)
    expect(array.ravel().tolist(), [(1, 2), (3, 4), (-1, 0.5)])
    library.bindery_tensor_free(taken)

for handle in (again, output, tensor):
    library.bindery_tensor_free(handle)
library.bindery_predictor_free(predictor)
library.bindery_model_free(model)
print("ok", library.bindery_version().decode())
