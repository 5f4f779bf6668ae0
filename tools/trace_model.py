"""Writes models/NAME.json, operator by operator, for networks that are no plain transformers: tools/trace_model.py [NAME ...]

Runs one training forward of each network, without data, and notes every operator that computes or moves something, with its sizes for ONE sample:
two batch sizes tell what grows with the batch from what does not. Needs torch, and timm 0.6.13 for the image networks; what ships is the JSON, so
nothing else needs either. The 3-D U-Net and the graph network stand below."""
import collections
import json
import pathlib
import re
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

FREE = {"_unsafe_view", "detach", "alias", "_reshape_alias", "lift_fresh"}
NORMS = {"native_batch_norm", "_native_batch_norm_legit", "native_layer_norm", "native_group_norm", "cudnn_batch_norm"}
POOLS = {"max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "mean", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"}
ELEMENT_BYTES = 4  # of the traced run


def tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def product(sizes):
    result = 1
    for size in sizes:
        result *= size
    return result


class Trace(TorchDispatchMode):
    """The operators of one forward: [name, kind, fields, output storages], sizes of the whole batch."""

    def __init__(self, model):
        super().__init__()
        self.stack, self.rows, self.kept, self.alive = [""], [], set(), []
        self.weights = {id(p) for p in model.parameters()} | {id(b) for b in model.buffers()}
        self.weight_storage = {p.untyped_storage()._cdata for p in model.parameters()}
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda *_, n=name: self.stack.append(n))
            module.register_forward_hook(lambda *_: self.stack.pop() and None)

    def keep(self, tensor):
        if tensor.numel():
            self.kept.add(tensor.untyped_storage()._cdata)
        return tensor

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        aliases = [r.alias_info for r in func._schema.returns]
        view = any(a is not None and not a.is_write for a in aliases)
        outs = list(tensors([out]))
        self.alive.extend(outs)  # a storage's address must not be used again
        if view or name in FREE or not outs or max(t.numel() for t in outs) <= 8:  # a number per sample or less
            return out
        in_place = any(a is not None and a.is_write for a in aliases)
        self.rows.append((self.stack[-1], name, self.sizes(name, args, outs[0]), self.storages(outs, in_place)))
        return out

    def storages(self, outs, in_place):
        return [] if in_place else [(t.untyped_storage()._cdata, t.untyped_storage().nbytes()) for t in outs]

    def sizes(self, name, args, out):
        """(kind, fields that grow with the batch, fields that do not)."""
        if name == "convolution":
            x, weight, _, stride, _, _, transposed, _, groups = args
            kernel = product(weight.shape[2:])
            channels = (weight.shape[0], weight.shape[1] * groups) if transposed else (weight.shape[1] * groups, weight.shape[0])
            if transposed:  # an output meets only every stride-th tap
                assert kernel % product(stride) == 0
                kernel //= product(stride)
            rows = {"positions": x.shape[0] * product(out.shape[2:]), "in_positions": x.shape[0] * product(x.shape[2:])}
            return "convolution", rows, {"in": channels[0], "out": channels[1], "kernel": kernel, "groups": groups}
        if name in ("addmm", "mm"):
            x, weight = args[-2:]
            return "linear", {"positions": x.shape[0], "in_positions": x.shape[0]}, {"in": x.shape[1], "out": weight.shape[1]}
        if name in ("bmm", "baddbmm"):
            a, b = args[-2:]
            rest = {"positions": a.shape[1], "in_positions": a.shape[1], "in": a.shape[2], "out": b.shape[2]}
            return "batched_matmul", {"groups": a.shape[0]}, rest
        kind = "elementwise"
        if name in NORMS:
            kind = "norm"
        elif name in POOLS:
            kind = "pool"
        elif name == "_softmax":
            kind = "softmax"
        elif name in ("index", "index_select"):
            kind = "gather"
        elif name == "index_add":
            kind = "scatter"
        elif name == "embedding":
            kind = "embedding"
        inputs = [t for t in tensors(args) if id(t) not in self.weights and t.untyped_storage()._cdata not in self.weight_storage]
        inputs = inputs[:1] if kind in ("norm", "gather", "scatter") else inputs
        image = out.dim() > 3 and name != "native_layer_norm"
        features = out.shape[1] if image else out.shape[-1]
        positions = out.numel() // features
        read = sum(t.numel() for t in inputs)
        if kind in ("gather", "scatter"):  # sizes are those of the edges' rows
            edges = max(out.numel(), args[-1].numel() if kind == "scatter" else 0)
            return kind, {"positions": edges // features, "in_positions": edges // features}, {"in": features, "out": features}
        in_positions = positions
        if inputs and read % positions:
            first = inputs[0]
            in_positions = first.numel() // (first.shape[1] if first.dim() > 3 else first.shape[-1])
            read -= read % in_positions
        if not inputs:
            in_positions, read = positions, 0
        return kind, {"positions": positions, "in_positions": in_positions}, {"in": read // in_positions, "out": features}


def run(make, batch):
    """On the meta device: sizes and the order of operators are real, nothing is computed and nothing takes memory."""
    model, inputs = make(batch)
    model.to("meta").train()
    inputs = [x.to("meta") for x in inputs]
    trace = Trace(model)
    with torch.autograd.graph.saved_tensors_hooks(trace.keep, lambda t: t), trace:
        model(*inputs)
    return model, trace


def operators_of(make, batch):
    """A list of operators per sample; what does not grow with the batch costs nothing, but its parameters count."""
    model, one = run(make, batch)
    _, two = run(make, 2 * batch)
    assert [r[:2] for r in one.rows] == [r[:2] for r in two.rows], "the batch changes the order of operators"
    own = {name: sum(p.numel() for p in module.parameters(recurse=False)) for name, module in model.named_modules()}
    leaves = {name for name, module in model.named_modules() if not list(module.children())}
    counted = collections.Counter(r[0] for r in one.rows)
    result, kept = [], set(one.kept)
    for (module, name, (kind, rows, rest), outs), (_, _, (_, rows_two, _), _) in zip(one.rows, two.rows):
        grows = any(rows[k] != rows_two[k] for k in rows)
        parameters = own.pop(module, 0)
        if not grows and not parameters:
            continue
        alone = counted[module] == 1 and module in leaves
        op = {"kind": kind, "name": module if alone else f"{module}.{name}".lstrip(".")}
        op.update(rest)
        op.update({key: value // batch if grows else 0 for key, value in rows.items()})
        saved = sum(size for pointer, size in outs if pointer in kept) if grows else 0
        kept -= {pointer for pointer, _ in outs}
        op.update({"parameters": parameters, "saved": saved // batch // ELEMENT_BYTES})
        result.append(op)
    for module, parameters in own.items():
        if parameters:  # used by a view only
            result.append({"kind": "elementwise", "name": f"{module}.weight", "positions": 0, "in_positions": 0, "parameters": parameters})
    return model, result


ORDER = ["kind", "name", "in", "out", "kernel", "groups", "positions", "in_positions", "parameters", "saved"]
DEFAULTS = {"in": 0, "out": 0, "kernel": 1, "groups": 1, "positions": 1, "parameters": 0, "saved": 0}  # in_positions: as positions


def block_of(name):
    """The numbered part of the network that an operator stands in: layer1.0 of layer1.0.downsample.0."""
    parts, end = name.split("."), 0
    for i, part in enumerate(parts[:-1]):
        if re.fullmatch(r"b?\d+", part):
            end = i + 1
        elif end and part != "blocks":
            break
    return ".".join(parts[:end])


def blocks_of(operators):
    """Neighbouring equal blocks as one with a count."""
    blocks = []
    for op in operators:
        block = block_of(op["name"])
        if not blocks or blocks[-1][0] != block:
            blocks.append((block, []))
        blocks[-1][1].append({**op, "name": op["name"][len(block) + 1:] if block else op["name"]})
    joined = []
    for name, ops in blocks:
        match = re.fullmatch(r"(.*?)(\d+)", name)
        head, index = (match.group(1), int(match.group(2))) if match else (name, None)
        last = joined[-1] if joined else None
        if last and index is not None and last["head"] == head and last["ops"] == ops and last["first"] + last["count"] == index:
            last["count"] += 1
        else:
            joined.append({"head": head, "first": index, "count": 1, "ops": ops})
    return joined


def write(path, facts, operators):
    lines = ["{", '  "schema": 1,'] + [f"  {json.dumps(k)}: {json.dumps(v)}," for k, v in facts.items()] + ['  "blocks": [']
    blocks = blocks_of(operators)
    for block in blocks:
        head = {"name": block["head"]}
        if block["first"] is not None:
            head.update({"first": block["first"], "count": block["count"]})
        lines.append(f'    {json.dumps(head)[:-1]}, "operators": [')
        for op in block["ops"]:
            short = {k: op[k] for k in ORDER if k in op and op[k] != DEFAULTS.get(k, op["positions"])}
            lines.append(f"      {json.dumps(short)}" + ("," if op is not block["ops"][-1] else ""))
        lines.append("    ]}" + ("," if block is not blocks[-1] else ""))
    path.write_text("\n".join(lines + ["  ]", "}"]) + "\n")


class UNet3d(torch.nn.Module):
    """Cicek et al. 2016 (arXiv:1606.06650), figure 2: 132 x 132 x 116 voxels of 3 channels in, valid convolutions, 3 classes out.

    Its 19069955 parameters are those of convolutions with biases, of norms without any and of up-convolutions without bias."""

    def __init__(self):
        super().__init__()

        def pair(a, b, c):
            def unit(i, o):
                return [torch.nn.Conv3d(i, o, 3), torch.nn.BatchNorm3d(o, affine=False), torch.nn.ReLU(inplace=True)]
            return torch.nn.Sequential(*unit(a, b), *unit(b, c))
        self.down = torch.nn.ModuleList([pair(3, 32, 64), pair(64, 64, 128), pair(128, 128, 256), pair(256, 256, 512)])
        self.pool = torch.nn.MaxPool3d(2)
        self.up = torch.nn.ModuleList([torch.nn.ConvTranspose3d(c, c, 2, 2, bias=False) for c in (512, 256, 128)])
        self.merge = torch.nn.ModuleList([pair(768, 256, 256), pair(384, 128, 128), pair(192, 64, 64)])
        self.head = torch.nn.Conv3d(64, 3, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else self.pool(x))
            skips.append(x)
        for up, merge, skip in zip(self.up, self.merge, skips[-2::-1]):
            x = up(x)
            cut = [(s - t) // 2 for s, t in zip(skip.shape[2:], x.shape[2:])]
            skip = skip[:, :, cut[0]:cut[0] + x.shape[2], cut[1]:cut[1] + x.shape[3], cut[2]:cut[2] + x.shape[4]]
            x = merge(torch.cat([skip, x], 1))
        return self.head(x)


class Sage(torch.nn.Module):
    """GraphSAGE as the ogbn-arxiv example of the Open Graph Benchmark has it: 3 layers of 256, mean over neighbours, batch norm between."""

    def __init__(self, edges, features=128, hidden=256, classes=40):
        super().__init__()
        sizes = [(features, hidden), (hidden, hidden), (hidden, classes)]
        self.edges = edges
        self.neighbour = torch.nn.ModuleList([torch.nn.Linear(i, o) for i, o in sizes])
        self.own = torch.nn.ModuleList([torch.nn.Linear(i, o, bias=False) for i, o in sizes])
        self.norm = torch.nn.ModuleList([torch.nn.BatchNorm1d(hidden) for _ in range(2)])

    def forward(self, x):
        source, target = self.edges
        for i in range(3):
            sums = torch.zeros_like(x).index_add(0, target, x.index_select(0, source))
            x = self.neighbour[i](sums / 8) + self.own[i](x)
            if i < 2:
                x = torch.relu(self.norm[i](x))
        return x


IMAGE = {"efficientnet_b2": 256, "efficientnet_b3": 288, "inception_v3": 299, "swinv2_tiny_window8_256": 256}
TIMM = """resnet34 resnet50 resnet101 wide_resnet50_2 resnext50_32x4d seresnet50 densenet121 inception_v3 efficientnet_b0 efficientnet_b1
efficientnet_b2 efficientnet_b3 regnety_080 regnety_160 convnext_tiny convnext_small convnext_base convnext_large mixer_b16_224 vit_tiny_patch16_224
vit_small_patch16_224 vit_base_patch16_224 vit_base_patch32_224 vit_large_patch16_224 vit_large_patch14_224 deit_tiny_patch16_224
deit_small_patch16_224 deit_base_patch16_224 swin_small_patch4_window7_224 swin_base_patch4_window7_224 swinv2_tiny_window8_256
xcit_small_12_p16_224""".split()
OTHER = {"resnet50": ["ResNet-50", "ResNet50v1.5", "ResNet50"], "resnet101": ["ResNet-101", "ResNet101"], "resnet34": ["ResNet-34"],
         "wide_resnet50_2": ["Wide-ResNet-50-2"], "convnext_tiny": ["ConvNeXt-T"], "convnext_small": ["ConvNeXt-S"],
         "convnext_base": ["ConvNeXt-B"], "convnext_large": ["ConvNeXt-L"], "mixer_b16_224": ["Mixer-B/16"],
         "vit_base_patch16_224": ["ViT-B/16"], "vit_large_patch16_224": ["ViT-L/16"]}


def trace_timm(name):
    import timm
    side = IMAGE.get(name, 224)

    def make(batch):
        layout = torch.channels_last  # as the published runs have it: it decides where a permutation costs a copy
        return timm.create_model(name).to(memory_format=layout), (torch.empty(batch, 3, side, side, device="meta").to(memory_format=layout),)
    model, operators = operators_of(make, 2)
    facts = {"name": name, "other_names": OTHER.get(name, []), "family": re.match(r"swinv2|[a-z]+", name).group(0),
             "source": f"one training forward of timm {timm.__version__} (huggingface/pytorch-image-models), by tools/trace_model.py",
             "sample": f"an image of 3 x {side} x {side}"}
    return model, operators, facts


def trace_unet():
    def make(batch):
        return UNet3d(), (torch.empty(batch, 3, 132, 132, 116, device="meta"),)
    model, operators = operators_of(make, 1)
    return model, operators, {"name": "unet3d", "other_names": ["3D-U-Net"], "family": "unet",
                              "source": "Cicek et al. 2016, 3D U-Net (arXiv:1606.06650), by tools/trace_model.py",
                              "sample": "a volume of 3 x 132 x 132 x 116"}


def trace_sage():
    nodes, edges = 169343, 2315598  # ogbn-arxiv with every edge both ways

    def make(batch):
        ends = torch.empty(2, batch * edges, dtype=torch.int64, device="meta")
        return Sage(ends), (torch.empty(batch * nodes, 128, device="meta"),)
    model, operators = operators_of(make, 1)
    return model, operators, {"name": "graphsage_arxiv", "other_names": ["GraphSAGE"], "family": "graphsage",
                              "source": "GraphSAGE of the Open Graph Benchmark's ogbn-arxiv example, by tools/trace_model.py",
                              "sample": "the whole graph: 169343 nodes, 2315598 directed edges"}


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "models"
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or TIMM + ["unet3d", "graphsage_arxiv"]:
        model, operators, facts = {"unet3d": trace_unet, "graphsage_arxiv": trace_sage}.get(name, lambda: trace_timm(name))()
        total = sum(p.numel() for p in model.parameters())
        assert total == sum(op["parameters"] for op in operators), name
        facts["parameters"] = total
        write(folder / f"{name}.json", facts, operators)
        print(name, total, len(operators), flush=True)


if __name__ == "__main__":
    main()
