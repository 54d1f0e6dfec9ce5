"""Numbers of Chainer's own, for tests/train/loop/trigger_test.cc and tests/train/loop/model_learner_test.cc: epochs, triggers,
and a training by ParallelUpdater. Chainer is no longer maintained and needs an environment of its own, of Python up
to 3.11:

    python3 -m venv chainer
    chainer/bin/pip install 'numpy<1.24' 'setuptools<60' wheel six filelock typing_extensions 'protobuf<3.21'
    chainer/bin/pip install --no-build-isolation --no-deps chainer==7.8.1
    chainer/bin/python tools/compare_chainer/chainer_numbers.py
"""
import chainer
import numpy as np
from chainer import training
from chainer.training import triggers


def epochs(samples, batch_size, batches, repeat=True):
    iterator = chainer.iterators.SerialIterator(list(range(samples)), batch_size, repeat=repeat, shuffle=False)
    print(f"samples {samples}, batch size {batch_size}, repeat {repeat}:")
    for _ in range(batches):
        try:
            batch = iterator.next()
        except StopIteration:
            print("  stop")
            break
        print(f"  {{{iterator.epoch}, {iterator.epoch_detail!r}, {iterator.previous_epoch_detail!r}, "
              f"{str(iterator.is_new_epoch).lower()}}},  // {batch}")


class Nothing(training.Updater):
    """Takes batches, and nothing else."""

    def __init__(self, samples, batch_size):
        self.iterator = chainer.iterators.SerialIterator(list(range(samples)), batch_size, shuffle=False)
        self.iteration = 0

    def update(self):
        self.iterator.next()
        self.iteration += 1

    epoch = property(lambda self: self.iterator.epoch)
    epoch_detail = property(lambda self: self.iterator.epoch_detail)
    previous_epoch_detail = property(lambda self: self.iterator.previous_epoch_detail)
    is_new_epoch = property(lambda self: self.iterator.is_new_epoch)

    def connect_trainer(self, trainer):
        pass

    def finalize(self):
        pass

    def get_all_optimizers(self):
        return {}

    def serialize(self, serializer):
        pass


VALUES = [5, 4, 4.5, 3, 3, 6, 2, 2.5, 1, 7, 1, 0.5, 3, 3, 3, 3, 3, 3, 3, 3]


def due(name, trigger, iterations=20):
    """The iterations at which it is due: ten samples, batches of three, the values above as "loss"."""
    updater = Nothing(10, 3)
    trainer = training.Trainer(updater, (iterations, "iteration"), out="/tmp")
    at = []
    for i in range(iterations):
        updater.update()
        trainer.observation = {"loss": VALUES[i]}
        if trigger(trainer):
            at.append(updater.iteration)
    print(f"  {name}: {{{', '.join(map(str, at))}}}")


def parallel():
    """Weights after each of five updates of a linear model by two "devices", of batches of four of six samples."""
    x = np.array([[1, 2], [0.5, -1], [2, 0], [-1, 1], [0, 3], [1.5, 0.5]], np.float32)
    t = np.array([[1], [0], [2], [-1], [0.5], [1]], np.float32)
    data = chainer.datasets.TupleDataset(x, t)

    class Regression(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.linear = chainer.links.Linear(2, 1, initialW=np.array([[0.3, -0.2]]), initial_bias=0.1)

        def forward(self, x, t):
            return chainer.functions.mean_squared_error(self.linear(x), t)

    model = Regression()
    # Gradients of means are summed over devices: half the rate for two of them.
    optimizer = chainer.optimizers.MomentumSGD(lr=0.1 / 2, momentum=0.9).setup(model)
    iterator = chainer.iterators.SerialIterator(data, 4, shuffle=False)
    updater = training.updaters.ParallelUpdater(iterator, optimizer,
                                                devices={"main": "@numpy", "second": "@numpy"})
    for _ in range(5):
        updater.update()
        w, b = model.linear.W.array[0], model.linear.b.array[0]
        print(f"  {{{float(w[0])!r}, {float(w[1])!r}, {float(b)!r}}},")
    serializer = chainer.serializers.DictionarySerializer()
    updater.serialize(serializer)
    print("  keys:", sorted({key.split("/")[0] for key in serializer.target}))


epochs(5, 2, 6)
epochs(6, 2, 4)
epochs(3, 7, 3)
epochs(5, 2, 4, repeat=False)
print("due:")
due("EveryEpochs(1)", triggers.IntervalTrigger(1, "epoch"))
due("EveryEpochs(2)", triggers.IntervalTrigger(2, "epoch"))
due("EveryEpochs(0.5)", triggers.IntervalTrigger(0.5, "epoch"))
due("EveryIterations(4)", triggers.IntervalTrigger(4, "iteration"))
due("AtEpochs({1, 2.5})", triggers.ManualScheduleTrigger([1, 2.5], "epoch"))
due("AtIterations({3, 7})", triggers.ManualScheduleTrigger([3, 7], "iteration"))
due("AtMinimum, every 2 iterations", triggers.MinValueTrigger("loss", (2, "iteration")))
due("AtMaximum, every epoch", triggers.MaxValueTrigger("loss", (1, "epoch")))
due("EarlyStopping, patience 2, every 2 iterations",
    triggers.EarlyStoppingTrigger((2, "iteration"), "loss", patience=2, mode="min", max_trigger=(1000, "epoch")))
print("ParallelUpdater:")
parallel()
