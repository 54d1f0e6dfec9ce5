"""MXNet's side of compare.sh: small models and single operators, made and run by MXNet, saved as it saves them, with
what it computes. MXNet is retired and needs an environment of its own, of Python up to 3.11:

    python3 -m venv mxnet && mxnet/bin/pip install 'numpy<1.24' mxnet==1.9.1
    mxnet/bin/python tools/compare_mxnet/models.py FOLDER               models, and recurrent operators
    mxnet/bin/python tools/compare_mxnet/models.py --operators FOLDER   the other operators
    mxnet/bin/python tools/compare_mxnet/models.py --stored FOLDER      the files in tests/train/stored

Of NAME there are NAME-symbol.json and NAME-0000.params, and NAME.npz with what was computed, in arrays

    data:X, label:X     of all steps, one after the other
    predict:K           head K of the first batch, in prediction, before any step
    output:K            head K of all steps, in training
    grad:X              of the first step
    param:X, aux:X      after the last step
    lr, momentum, wd    of SGD, whose divisor is the batch size

and of an operator, without steps, `data:X`, `head:K` (the gradient of head K), `output:K` and `grad:X`.

Of two contexts with uneven work, uneven.npz is what MXNet's group computes: `output:0` is merged, `grad:X` the sum. Its
running statistics are left out: MXNet's are means of the contexts', whatever their shares are.

Of a BucketingModule there are bucket_KEY-symbol.json, the values with the largest key, and buckets.npz, with `keys` of
all steps and `data:STEP`, `label:STEP`, `output:STEP`, `param:X`, lr, momentum and wd. Of a module with states, which
go from each batch to the next on two contexts with uneven work, states-symbol.json, states-0000.params and states.npz
with `data:STEP`, `label:STEP`, `output:STEP` and so on.
"""
import argparse
import json
import os
import sys

# Of single operators its own kernels: those of its oneDNN lack some forms, and its own some of recurrent layers.
os.environ["MXNET_MKLDNN_ENABLED"] = "0" if "--operators" in sys.argv else "1"

import mxnet as mx  # noqa: E402
import numpy as np

import operators

S = mx.sym


def convolution(data, filters, name, **options):
    return S.Convolution(data, num_filter=filters, name=name, **options)


def lenet():
    x = S.Variable("data")
    x = S.Activation(convolution(x, 4, "conv1", kernel=(3, 3)), act_type="tanh", name="tanh1")
    x = S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool1")
    x = S.Activation(convolution(x, 6, "conv2", kernel=(3, 3)), act_type="relu")
    x = S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = S.Activation(S.FullyConnected(S.Flatten(x), num_hidden=16, name="fc1"), act_type="sigmoid")
    x = S.FullyConnected(x, num_hidden=5, name="fc2")
    return S.SoftmaxOutput(x, name="softmax"), {"data": (6, 1, 14, 14)}, {"softmax_label": 5}


def residual():
    """Batch-norm in both forms, no bias, groups, an average over windows that reach beyond the edge, a global one."""
    x = S.Variable("data")
    with mx.AttrScope(ctx_group="stage1"):
        x = convolution(x, 6, "conv0", kernel=(3, 3), pad=(1, 1), no_bias=True)
        x = S.Activation(S.BatchNorm(x, name="bn0"), act_type="relu")
        y = convolution(x, 6, "conv1", kernel=(3, 3), pad=(1, 1), num_group=2, no_bias=True)
        y = S.BatchNorm(y, name="bn1", fix_gamma=False, eps=2e-5, momentum=0.8)
        x = S.LeakyReLU(x + y, slope=0.1)
    x = S.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="avg", pooling_convention="full")
    x = S.LRN(x, nsize=3)
    x = S.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1))
    weight = S.Variable("fc_weight", lr_mult=0.5, init=mx.init.Normal(0.3))
    x = S.FullyConnected(x, weight=weight, num_hidden=4, name="fc")
    return S.SoftmaxOutput(x, name="softmax"), {"data": (8, 3, 8, 8)}, {"softmax_label": 4}


def lstm():
    """A language model: unrolled cells, of which the first states are zeros of a batch that is not said."""
    length, words = 4, 7
    data, label = S.Variable("data"), S.Variable("softmax_label")
    x = S.Embedding(data, input_dim=words, output_dim=5, name="embed")
    cells = mx.rnn.SequentialRNNCell()
    cells.add(mx.rnn.LSTMCell(num_hidden=6, prefix="lstm_l0_"))
    cells.add(mx.rnn.LSTMCell(num_hidden=6, prefix="lstm_l1_"))
    outputs, _ = cells.unroll(length, inputs=x, merge_outputs=True)
    x = S.FullyConnected(S.Reshape(outputs, shape=(-1, 6)), num_hidden=words, name="pred")
    net = S.SoftmaxOutput(x, S.Reshape(label, shape=(-1,)), name="softmax", use_ignore=True, ignore_label=0,
                          normalization="valid")
    return net, {"data": ("ids", words, (6, length))}, {"softmax_label": (words, (6, length))}


def fused():
    """Both directions of a GRU and of an LSTM, whose parameters are one vector."""
    data = S.Variable("data")
    x = S.swapaxes(data, dim1=0, dim2=1)
    gru = mx.rnn.FusedRNNCell(4, num_layers=2, mode="gru", bidirectional=True, prefix="gru_")
    lstm_cell = mx.rnn.FusedRNNCell(3, num_layers=1, mode="lstm", prefix="lstm_")
    x, _ = gru.unroll(5, inputs=x, layout="TNC", merge_outputs=True)
    x, _ = lstm_cell.unroll(5, inputs=x, layout="TNC", merge_outputs=True)
    x = S.SequenceLast(x)
    net = S.LinearRegressionOutput(S.FullyConnected(x, num_hidden=2, name="fc"), S.Variable("target"), name="out")
    return net, {"data": (4, 5, 3)}, {"target": (4, 2)}


def two_heads():
    x = S.Variable("data")
    x = S.Activation(S.FullyConnected(x, num_hidden=8, name="fc1"), act_type="tanh")
    a = S.SoftmaxOutput(S.FullyConnected(x, num_hidden=3, name="fc2"), name="softmax", smooth_alpha=0.1)
    b = S.LinearRegressionOutput(S.FullyConnected(x, num_hidden=2, name="fc3"), S.Variable("target"), name="linear",
                                 grad_scale=0.5)
    return S.Group([a, b, S.BlockGrad(x, name="features")]), {"data": (5, 4)}, {"softmax_label": 3, "target": (5, 2)}


def mlp():
    x = S.Variable("data")
    x = S.Activation(S.FullyConnected(x, num_hidden=6, name="fc1"), act_type="relu", name="relu1")
    x = S.BatchNorm(x, name="bn", fix_gamma=False)
    return (S.SoftmaxOutput(S.FullyConnected(x, num_hidden=3, name="fc2"), name="softmax"), {"data": (6, 4)},
            {"softmax_label": 3})


def gluon():
    """As Gluon writes graphs: layers of its own, parameters of a recurrent one joined by a node, shapes declared."""
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(4, flatten=False, in_units=3), mx.gluon.nn.ELU(),
                mx.gluon.rnn.LSTM(5, num_layers=2, layout="NTC", bidirectional=True, input_size=4),
                mx.gluon.nn.LayerNorm(in_channels=10), mx.gluon.nn.Dense(3, activation="tanh"))
    return S.SoftmaxOutput(net(S.Variable("data")), name="softmax"), {"data": (4, 6, 3)}, {"softmax_label": 3}


MODELS = {f.__name__: f for f in [gluon, lenet, residual, lstm, fused, two_heads, mlp]}


def draw(rng, what, steps, batch):
    """Data of a shape, ids below a number, or class numbers."""
    if isinstance(what, int):
        return rng.integers(0, what, (steps, batch)).astype(np.float32)
    if what[0] == "ids":
        return rng.integers(0, what[1], (steps,) + what[2]).astype(np.float32)
    if len(what) == 2 and isinstance(what[1], tuple):
        return rng.integers(0, what[0], (steps,) + what[1]).astype(np.float32)
    return rng.normal(0, 1, (steps,) + what).astype(np.float32)


def batch_of(inputs, names, step):
    return mx.io.DataBatch([mx.nd.array(inputs["data:" + n][step]) for n in names[0]],
                           [mx.nd.array(inputs["label:" + n][step]) for n in names[1]])


def make_model(folder, name, saved_as=None, workload=(1,), steps=5, lr=0.2, momentum=0.9, wd=0.01):
    rng = np.random.default_rng(7)
    net, data, labels = MODELS[name]()
    name = saved_as or name
    alone = len(workload) == 1
    shapes = {n: s if s[0] != "ids" else s[2] for n, s in data.items()}
    batch = next(iter(shapes.values()))[0]
    arrays = {f"data:{n}": draw(rng, s, steps, batch) for n, s in data.items()}
    arrays |= {f"label:{n}": draw(rng, s, steps, batch) for n, s in labels.items()}
    module = mx.mod.Module(net, data_names=list(data), label_names=list(labels),
                           context=[mx.cpu(i) for i in range(len(workload))], work_load_list=list(workload))
    module.bind([(n, arrays[f"data:{n}"].shape[1:]) for n in data],
                [(n, arrays[f"label:{n}"].shape[1:]) for n in labels])
    mx.random.seed(3)
    module.init_params(mx.init.Xavier(magnitude=2))
    args, aux = module.get_params()
    args = {n: mx.nd.array(rng.normal(0, 0.4, v.shape)) for n, v in sorted(args.items())}
    aux = {n: mx.nd.array(rng.uniform(0.5, 1.5, v.shape)) for n, v in sorted(aux.items())}
    module.set_params(args, aux)
    module.save_checkpoint(f"{folder}/{name}", 0)
    # A head that divides by the valid labels is not divided by the batch again.
    rescale = 1.0 if name == "lstm" else 1.0 / batch
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": lr, "momentum": momentum, "wd": wd,
                                                             "rescale_grad": rescale})
    names = (list(data), list(labels))
    module.forward(batch_of(arrays, names, 0), is_train=False)
    arrays |= {f"predict:{k}": out.asnumpy() for k, out in enumerate(module.get_outputs())}
    outputs = []
    for step in range(steps):
        module.forward_backward(batch_of(arrays, names, step))
        outputs.append([out.asnumpy() for out in module.get_outputs()])
        if step == 0:
            executors = module._exec_group.execs
            arrays |= {f"grad:{n}": sum(e.grad_dict[n].asnumpy() for e in executors)
                       for n, g in executors[0].grad_dict.items() if g is not None and (alone or n in args)}
        module.update()
    arrays |= {f"output:{k}": np.stack([o[k] for o in outputs]) for k in range(len(outputs[0]))}
    args, aux = module.get_params()
    arrays |= {f"param:{n}": v.asnumpy() for n, v in args.items()}
    arrays |= {f"aux:{n}": v.asnumpy() for n, v in aux.items() if alone}
    arrays |= {"lr": np.float64(lr), "momentum": np.float64(momentum), "wd": np.float64(wd)}
    np.savez_compressed(f"{folder}/{name}.npz", **arrays)


def make_buckets(folder, keys=(5, 3, 2, 5, 3, 3, 2, 5, 2, 3), words=7, batch=6, lr=0.3, momentum=0.9, wd=0.01):
    """Sequences of several lengths, each by a network unrolled to just as many steps."""
    rng = np.random.default_rng(5)

    def network(length):
        data, label = S.Variable("data"), S.Variable("softmax_label")
        x = S.Embedding(data, input_dim=words, output_dim=5, name="embed")
        outputs, _ = mx.rnn.LSTMCell(num_hidden=6, prefix="lstm_").unroll(length, inputs=x, merge_outputs=True)
        x = S.FullyConnected(S.Reshape(outputs, shape=(-1, 6)), num_hidden=words, name="pred")
        return S.SoftmaxOutput(x, S.Reshape(label, shape=(-1,)), name="softmax"), ["data"], ["softmax_label"]

    default = max(keys)
    module = mx.mod.BucketingModule(network, default_bucket_key=default, context=mx.cpu())
    module.bind([("data", (batch, default))], [("softmax_label", (batch, default))])
    module.init_params(mx.init.Xavier())
    args, _ = module.get_params()
    args = {n: mx.nd.array(rng.normal(0, 0.4, v.shape)) for n, v in sorted(args.items())}
    module.set_params(args, {})
    mx.nd.save(f"{folder}/bucket_{default}-0000.params", {"arg:" + n: v for n, v in args.items()})
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": lr, "momentum": momentum, "wd": wd,
                                                             "rescale_grad": 1.0 / batch})
    arrays = {"keys": np.array(keys), "lr": np.float64(lr), "momentum": np.float64(momentum), "wd": np.float64(wd)}
    for key in set(keys):
        network(key)[0].save(f"{folder}/bucket_{key}-symbol.json")
    for step, key in enumerate(keys):
        data, label = (rng.integers(0, words, (batch, key)).astype(np.float32) for _ in range(2))
        module.forward_backward(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)], bucket_key=key,
                                                provide_data=[("data", data.shape)],
                                                provide_label=[("softmax_label", label.shape)]))
        arrays |= {f"data:{step}": data, f"label:{step}": label, f"output:{step}": module.get_outputs()[0].asnumpy()}
        module.update()
    args, _ = module.get_params()
    np.savez_compressed(f"{folder}/buckets.npz", **arrays, **{f"param:{n}": v.asnumpy() for n, v in args.items()})


def make_states(folder, steps=6, words=7, hidden=5, batch=6, length=4, lr=0.3, momentum=0.9, wd=0.01):
    """A recurrent layer that begins each batch where it ended the last one."""
    rng = np.random.default_rng(9)
    x = S.swapaxes(S.Embedding(S.Variable("data"), input_dim=words, output_dim=4, name="embed"), dim1=0, dim2=1)
    cell = mx.rnn.FusedRNNCell(hidden, num_layers=1, mode="lstm", prefix="lstm_", get_next_state=True)
    outputs, states = cell.unroll(length, inputs=x, begin_state=[S.Variable("h"), S.Variable("c")], layout="TNC",
                                  merge_outputs=True)
    x = S.Reshape(S.swapaxes(outputs, dim1=0, dim2=1), shape=(-1, hidden))
    x = S.FullyConnected(x, num_hidden=words, name="pred")
    loss = S.SoftmaxOutput(x, S.Reshape(S.Variable("softmax_label"), shape=(-1,)), name="softmax")
    net = S.Group([loss] + [S.BlockGrad(state, name=f"next_{n}") for n, state in zip("hc", states)])
    module = mx.mod.Module(net, data_names=["data"], label_names=["softmax_label"], state_names=["h", "c"],
                           context=[mx.cpu(0), mx.cpu(1)], work_load_list=[2, 1])
    module.bind([("data", (batch, length))], [("softmax_label", (batch, length))])
    module.init_params(mx.init.Uniform(0.4))
    args, _ = module.get_params()
    args = {n: mx.nd.array(rng.normal(0, 0.4, v.shape)) for n, v in sorted(args.items())}
    module.set_params(args, {})
    module.save_checkpoint(f"{folder}/states", 0)
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": lr, "momentum": momentum, "wd": wd,
                                                             "rescale_grad": 1.0 / batch})
    module.set_states(value=0)
    arrays = {"lr": np.float64(lr), "momentum": np.float64(momentum), "wd": np.float64(wd),
              "hidden": np.float64(hidden)}
    for step in range(steps):
        data, label = (rng.integers(0, words, (batch, length)).astype(np.float32) for _ in range(2))
        module.forward_backward(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)]))
        outputs = module.get_outputs(merge_multi_context=False)
        output = np.concatenate([part.asnumpy() for part in outputs[0]])
        arrays |= {f"data:{step}": data, f"label:{step}": label, f"output:{step}": output}
        module.update()
        module.set_states(states=outputs[1:])
    args, _ = module.get_params()
    np.savez_compressed(f"{folder}/states.npz", **arrays, **{f"param:{n}": v.asnumpy() for n, v in args.items()})


def as_version_0_8(graph):
    """The same graph as MXNet 0.8 wrote it: attributes of operators in `param`, auxiliary states left out, entries of
    two numbers, no version."""
    aux = {n["inputs"][k][0] for n in graph["nodes"] if n["op"] == "BatchNorm" for k in (3, 4)}
    number = {}
    for i in range(len(graph["nodes"])):
        if i not in aux:
            number[i] = len(number)
    nodes = []
    for i, node in enumerate(graph["nodes"]):
        if i in aux:
            continue
        inputs = [[number[e[0]], e[1]] for e in node["inputs"] if e[0] not in aux]
        nodes.append({"op": node["op"], "param": node.get("attrs", {}), "name": node["name"], "inputs": inputs,
                      "backward_source_id": -1})
    nodes[-1]["attr"] = {"lr_mult": "1.0"}
    return {"nodes": nodes, "arg_nodes": [number[i] for i in graph["arg_nodes"] if i not in aux],
            "heads": [[number[h[0]], h[1]] for h in graph["heads"]]}


def make_old(folder, name, old):
    """What was computed stays what it was: MXNet reads both alike."""
    with open(f"{folder}/{name}-symbol.json") as file:
        graph = as_version_0_8(json.load(file))
    with open(f"{folder}/{old}-symbol.json", "w") as file:
        json.dump(graph, file, indent=1)
    read = mx.sym.load(f"{folder}/{old}-symbol.json")
    first = mx.sym.load(f"{folder}/{name}-symbol.json")
    assert read.list_auxiliary_states() == first.list_auxiliary_states(), read.list_auxiliary_states()
    args = mx.nd.load(f"{folder}/{name}-0000.params")
    mx.nd.save(f"{folder}/{old}-0003.params", args)
    with open(f"{folder}/{name}.npz", "rb") as source, open(f"{folder}/{old}.npz", "wb") as copy:
        copy.write(source.read())


def make_operators(folder, recurrent):
    rng = np.random.default_rng(11)
    for index, (name, net, inputs) in enumerate(operators.cases(rng)):
        if name.startswith("rnn_") != recurrent:
            continue
        values = {n: mx.nd.array(v, dtype=v.dtype) for n, v in inputs.items()}
        grads = {n: mx.nd.zeros(v.shape, dtype=v.dtype) for n, v in values.items()
                 if n in net.list_arguments() and not {n, name} & operators.WITHOUT_GRADIENT}
        aux = {n: values[n] for n in net.list_auxiliary_states()}
        args = {n: values[n] for n in net.list_arguments()}
        executor = net.bind(mx.cpu(), args, grads, {n: "write" if n in grads else "null" for n in args}, aux)
        outputs = executor.forward(is_train=True)
        arrays = {f"data:{n}": v for n, v in inputs.items()}
        heads = []
        for k, out in enumerate(outputs):
            arrays[f"output:{k}"] = out.asnumpy()
            heads.append(mx.nd.array(rng.normal(0, 1, out.shape).astype(out.dtype), dtype=out.dtype))
            arrays[f"head:{k}"] = heads[-1].asnumpy()
        if name not in operators.WITHOUT_GRADIENT:
            executor.backward(heads)
            arrays |= {f"grad:{n}": g.asnumpy() for n, g in grads.items()}
        path = f"{folder}/operator_{index:03}_{name}"
        net.save(path + "-symbol.json")
        np.savez_compressed(path + ".npz", **arrays)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--operators", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    if options.operators:
        return make_operators(options.folder, False)
    for name in ["mlp", "two_heads", "lstm"] if options.stored else MODELS:
        make_model(options.folder, name)
    make_old(options.folder, "mlp", "old_mlp")
    make_model(options.folder, "residual", saved_as="uneven", workload=(2, 1))
    make_buckets(options.folder)
    make_states(options.folder)
    if not options.stored:
        make_operators(options.folder, True)


main()
