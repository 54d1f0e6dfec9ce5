"""ONNX Runtime's side of compare.sh: predictions of the network as we export it, by the protocol of protocol.py; inputs
and outputs are bound, so that nothing is copied. Settings:

    spinning   1 or 0: whether threads spin while they wait for work
    level      of optimizations: ORT_ENABLE_ALL, ORT_ENABLE_EXTENDED, ORT_ENABLE_BASIC
"""

import os

import numpy
import onnxruntime

import protocol


class Side:
    def __init__(self, options):
        session = onnxruntime.SessionOptions()
        session.intra_op_num_threads = options.threads
        session.inter_op_num_threads = 1
        session.add_session_config_entry("session.intra_op.allow_spinning", options.set.get("spinning", "1"))
        session.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel,
                                                   options.set.get("level", "ORT_ENABLE_ALL"))
        session.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(os.path.join(options.folder, "model.onnx"), session,
                                                    providers=["CPUExecutionProvider"])
        batch = numpy.load(os.path.join(options.folder, "batch.npz"))
        self.label = batch["label"].astype(int).reshape(-1)
        given, found = self.session.get_inputs()[0], self.session.get_outputs()[0]
        data = batch["data"].astype({"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64,
                                     "tensor(int32)": numpy.int32}[given.type])
        output = self.session.run([found.name], {given.name: data})[0]
        self.bound = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in (data, output)]
        self.binding = self.session.io_binding()
        self.binding.bind_ortvalue_input(given.name, self.bound[0])
        self.binding.bind_ortvalue_output(found.name, self.bound[1])

    def step(self):
        self.session.run_with_iobinding(self.binding)

    def run(self, steps):
        return protocol.timed(self.step, steps)

    def losses(self, steps):
        found = []
        for _ in range(steps):
            self.step()
            scores = self.bound[1].numpy().reshape(len(self.label), -1).astype(numpy.float64)
            scores -= scores.max(1, keepdims=True)
            of_label = scores[numpy.arange(len(self.label)), self.label]
            found.append(float((numpy.log(numpy.exp(scores).sum(1)) - of_label).mean()))
        return found


protocol.serve(f"ONNX Runtime {onnxruntime.__version__}", Side)
