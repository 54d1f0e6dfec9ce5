"""Writes small models as PyTorch, transformers and ONNX Runtime's quantizer make them, with what ONNX Runtime computes:

    python tools/onnx_check/stored.py FOLDER      the files in tests/train/stored/onnx

NAME.onnx beside NAME.npz, whose arrays are "0:in:x", "0:out:0", "1:in:x" ...: inputs by name and outputs by place, of
one run after another. Needs torch, transformers, torchvision, onnx, onnxruntime and onnxscript.
"""

import sys
import warnings
from pathlib import Path

import numpy
import onnx
import onnxruntime
import torch
import transformers
from onnx import helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.transformers import optimizer
from torch import nn
from torchvision.models import swin_transformer

WORDS = 11
FOLDER = Path(sys.argv[1])
SIZES = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=6, vocab_size=WORDS,
             max_position_embeddings=10, initializer_range=0.5)
BOTH = ['input_ids', 'attention_mask']


def bert(attention):
    return transformers.BertModel(transformers.BertConfig(**SIZES, attn_implementation=attention))


def distilbert(attention):
    return transformers.DistilBertModel(transformers.DistilBertConfig(
        vocab_size=WORDS, dim=8, n_layers=1, n_heads=2, hidden_dim=6, max_position_embeddings=10,
        initializer_range=0.5, attn_implementation=attention))


def gpt2(attention):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=WORDS, n_embd=8, n_layer=1, n_head=2, n_positions=10, use_cache=False, initializer_range=0.5,
        attn_implementation=attention))


def t5(attention):
    return transformers.T5EncoderModel(transformers.T5Config(
        vocab_size=WORDS, d_model=8, d_kv=4, d_ff=6, num_layers=1, num_heads=2, use_cache=False,
        attn_implementation=attention))


def llama(attention):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **SIZES, num_key_value_heads=1, use_cache=False, attn_implementation=attention))


class Inputs(nn.Module):
    """A model of transformers, of inputs by their places: its first output."""

    def __init__(self, model, names):
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), return_dict=True)[0]


def texts(names, batch, time):
    values = {'input_ids': torch.randint(2, WORDS, (batch, time)),
              'attention_mask': (torch.arange(time)[None] < time - torch.arange(batch)[:, None]).long(),
              'token_type_ids': (torch.arange(time) > time // 2).long().expand(batch, time).contiguous()}
    return {name: values[name] for name in names}


class Pictures(nn.Module):
    """What is quantized: convolutions, with groups too, poolings, a sum, joined parts, layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.layer = nn.Linear(16, 5)

    def forward(self, x):
        a = torch.relu(self.first(x))
        b = nn.functional.max_pool2d(a + self.second(a), 2)
        c = nn.functional.avg_pool2d(self.up(b), 2)
        d = torch.cat([c[:, :2], torch.sigmoid(c[:, 2:])], 1)
        return torch.softmax(self.layer(torch.flatten(d, 1)), 1)


def store(name, runs):
    """The model as it is without what was noted on its way, and what it computes."""
    model = onnx.load(FOLDER / f'{name}.onnx')
    del model.metadata_props[:], model.graph.metadata_props[:], model.graph.value_info[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ''
    for function in model.functions:
        for node in function.node:
            del node.metadata_props[:]
    onnx.save(model, FOLDER / f'{name}.onnx')
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(FOLDER / f'{name}.onnx', options, providers=['CPUExecutionProvider'])
    asked = {value.name for value in session.get_inputs()}
    arrays = {}
    for run, inputs in enumerate(runs):
        inputs = {key: value.numpy() for key, value in inputs.items() if key in asked}
        arrays.update({f'{run}:in:{key}': value for key, value in inputs.items()})
        arrays.update({f'{run}:out:{i}': value for i, value in enumerate(session.run(None, inputs))})
    numpy.savez(FOLDER / f'{name}.npz', **arrays)


def export(name, module, axes, newer, runs):
    """Exported from the first of `runs`; `axes`: the open ones by their names, of every input."""
    torch.manual_seed(3)
    module = module().eval()
    inputs = tuple(runs[0].values())
    if newer:
        shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in axes} for _ in inputs)
        torch.onnx.export(module, inputs, dynamo=True, verbose=False, input_names=list(runs[0]),
                          dynamic_shapes=(shapes,) if isinstance(module, Inputs) else shapes).save(
                              FOLDER / f'{name}.onnx', external_data=False)
    else:
        torch.onnx.export(module, inputs, FOLDER / f'{name}.onnx', dynamo=False, input_names=list(runs[0]),
                          dynamic_axes={key: axes for key in runs[0]}, opset_version=17)
    store(name, runs)


def quantize(name, model, runs, form=quantization.QuantFormat.QDQ, **options):
    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = [{key: value.numpy() for key, value in run.items()} for run in runs]

        def get_next(self):
            return self.left.pop() if self.left else None

    quantization.quantize_static(FOLDER / f'{model}.onnx', FOLDER / f'{name}.onnx', Reader(),
                                 quant_format=form, **options)
    store(name, runs)


def fused(name, model, runs):
    """With ONNX Runtime's own operators, as its optimizer for transformers writes them."""
    optimizer.optimize_model(str(FOLDER / f'{model}.onnx'), 'bert', num_heads=2, hidden_size=8, opt_level=0) \
        .save_model_to_file(str(FOLDER / f'{name}.onnx'))
    store(name, runs)


def graph(name, inputs, outputs, values, nodes, runs):
    """Of ONNX Runtime's own operators: nodes are (operator, inputs, outputs, attributes)."""
    kinds = {'float32': onnx.TensorProto.FLOAT, 'int32': onnx.TensorProto.INT32, 'int64': onnx.TensorProto.INT64}
    described = [helper.make_tensor_value_info(key, kinds[kind], axes) for key, kind, axes in inputs]
    results = [helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, None) for key in outputs]
    stored = [value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(value, key)
              for key, value in values.items()]
    made = [helper.make_node(op, names.split(','), gives.split(','), **attributes,
                             domain='' if op in ('Add', 'DequantizeLinear', 'MatMul') else 'com.microsoft')
            for op, names, gives, attributes in nodes]
    opsets = [helper.make_opsetid('', 21), helper.make_opsetid('com.microsoft', 1)]
    onnx.save(helper.make_model(helper.make_graph(made, name, described, results, stored), opset_imports=opsets,
                                ir_version=10), FOLDER / f'{name}.onnx')
    store(name, runs)


def attention():
    """ONNX Runtime's kinds of attention, with and without a past, which is longer for one sample than for another."""
    torch.manual_seed(1)
    angles = torch.randn(12, 8)
    values = {'w': torch.randn(6, 96), 'b': torch.randn(96), 'cos': angles.cos(), 'sin': angles.sin()}
    past = ['batch', 2, 'past', 16]
    inputs = [('x', 'float32', ['batch', 'time', 6]), ('mask', 'int32', ['batch', 'all']), ('pk', 'float32', past),
              ('pv', 'float32', past), ('last', 'int32', ['batch']), ('total', 'int32', []),
              ('q', 'float32', ['batch', 'time', 64]), ('kv', 'float32', ['batch', 'time', 32])]
    nodes = [('Attention', 'x,w,b', 'a', dict(num_heads=2, unidirectional=1)),
             ('MultiHeadAttention', 'a,a,a,b,mask,,pk,pv', 'm,mk,mv', dict(num_heads=2, unidirectional=1)),
             ('GroupQueryAttention', 'q,kv,kv,pk,pv,last,total,cos,sin', 'g,gk,gv',
              dict(num_heads=4, kv_num_heads=2, do_rotary=1, local_window_size=3))]
    runs = []
    for batch, time, room in [(2, 3, 0), (2, 1, 4), (1, 2, 5)]:
        shape = [batch, 2, room, 16]
        total = room + time
        runs.append({'x': torch.randn(batch, time, 6), 'mask': torch.ones(batch, total, dtype=torch.int32),
                     'pk': torch.randn(shape), 'pv': torch.randn(shape), 'q': torch.randn(batch, time, 64),
                     'kv': torch.randn(batch, time, 32), 'total': torch.tensor(total, dtype=torch.int32),
                     'last': torch.tensor([total - 1, total - 2 if time == 1 else total - 1][:batch],
                                          dtype=torch.int32)})
        runs[-1]['mask'][-1, 0] = 0
    graph('attention_fused', inputs, ['a', 'm', 'mk', 'mv', 'g', 'gk', 'gv'],
          {key: value.numpy() for key, value in values.items()}, nodes, runs)


def few_bits():
    """Weights of 4 bits with scales of blocks: in bytes, and as int4 and uint4 of opset 21."""
    torch.manual_seed(1)
    random = lambda *shape: torch.randn(*shape).numpy()
    packed = lambda *shape: torch.randint(0, 256, shape, dtype=torch.uint8).numpy()
    small = lambda key, kind, low, *shape: helper.make_tensor(
        key, kind, shape, torch.randint(low, low + 16, shape).flatten().tolist())
    kinds = onnx.TensorProto
    values = {'table': packed(9, 16), 'table_scale': random(9, 2), 'w1': packed(6, 2, 8), 's1': random(6, 2),
              'z1': packed(6, 1), 'w2': small('w2', kinds.INT4, -8, 6, 5), 's2': random(3, 5),
              'w3': small('w3', kinds.UINT4, 0, 5, 6), 's3': random(5, 2), 'z3': small('z3', kinds.UINT4, 0, 5, 2)}
    nodes = [('GatherBlockQuantized', 'table,ids,table_scale', 'e',
              dict(bits=4, block_size=16, gather_axis=0, quantize_axis=1)),
             ('MatMulNBits', 'e,w1,s1,z1', 'h1', dict(K=32, N=6, bits=4, block_size=16)),
             ('DequantizeLinear', 'w2,s2', 'd2', dict(axis=0, block_size=2)), ('MatMul', 'h1,d2', 'h2', {}),
             ('DequantizeLinear', 'w3,s3,z3', 'd3', dict(axis=1, block_size=3)), ('MatMul', 'h2,d3', 'y', {})]
    graph('few_bits', [('ids', 'int64', ['batch', 'time'])], ['y'], values, nodes,
          [{'ids': torch.randint(0, 9, shape)} for shape in [(2, 3), (3, 1)]])


def main():
    warnings.filterwarnings('ignore')
    for make, names, form in [(bert, BOTH + ['token_type_ids'], 'sdpa'), (distilbert, BOTH, 'sdpa'),
                              (gpt2, BOTH, 'eager'), (t5, BOTH, 'eager'), (llama, BOTH, 'sdpa')]:
        for newer in [False, True]:
            torch.manual_seed(1)
            runs = [texts(names, 2, 5), texts(names, 3, 7), texts(names, 1, 1)]
            export(f'{make.__name__}_{"exported" if newer else "traced"}', lambda: Inputs(make(form), names),
                   {0: 'batch', 1: 'time'}, newer, runs)
    torch.manual_seed(1)
    runs = [{'x': torch.randn(2, 3, size, size)} for size in [16, 24]]
    export('swin_exported', lambda: swin_transformer.SwinTransformer(
        patch_size=[4, 4], embed_dim=4, depths=[2], num_heads=[2], window_size=[2, 2], num_classes=3),
        {0: 'batch', 2: 'height', 3: 'width'}, True, runs)
    torch.manual_seed(1)
    runs = [{'x': torch.randn(3, 2, 4, 4)} for _ in range(2)]
    export('pictures', Pictures, {0: 'batch'}, False, runs)
    kinds = quantization.QuantType
    for act, weight in [(kinds.QUInt8, kinds.QInt8), (kinds.QInt8, kinds.QInt8), (kinds.QUInt8, kinds.QUInt8)]:
        for per_channel in [False, True]:
            form = f'{act}_{weight}_{"each" if per_channel else "all"}'.lower()
            quantize(f'pictures_{form}', 'pictures', runs, activation_type=act, weight_type=weight,
                     per_channel=per_channel)
    symmetric = {'ActivationSymmetric': True, 'WeightSymmetric': True, 'AddQDQPairToWeight': True}
    quantize('pictures_symmetric', 'pictures', runs, activation_type=kinds.QInt8, weight_type=kinds.QInt8,
             extra_options=symmetric)
    quantize('pictures_operators', 'pictures', runs, form=quantization.QuantFormat.QOperator, per_channel=True,
             activation_type=kinds.QUInt8, weight_type=kinds.QInt8)
    fused('bert_fused', 'bert_traced', [texts(BOTH + ['token_type_ids'], 2, 5), texts(BOTH + ['token_type_ids'], 3, 7)])
    attention()
    few_bits()
    quantize('distilbert_quantized', 'distilbert_traced', [texts(BOTH, 2, 5), texts(BOTH, 3, 4)],
             activation_type=kinds.QUInt8, weight_type=kinds.QInt8)


main()
