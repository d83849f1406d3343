// Statements to instructions: names get their places in a warp's frame, symbols their addresses,
// calls become the called body.
#include <algorithm>

#include "ptx.h"

namespace ptx {

bool opcode::take(const char *part) {
    auto found = std::find(parts.begin(), parts.end(), part);
    if (found == parts.end()) {
        return false;
    }
    parts.erase(found);
    return true;
}

std::string opcode::type() {
    for (auto p = parts.begin(); p != parts.end(); ++p) {
        if (type_bytes(*p) || *p == "pred") {
            std::string t = *p;
            parts.erase(p);
            return t;
        }
    }
    return "";
}

namespace {

// What a name means: a register, or a variable with its address in its space.
struct meaning {
    std::string type;
    uint32_t place = none;
    space where = space::generic;
    uint64_t address = 0;
    bool ranged = false, variable = false;
};

struct scope {
    scope *outer;
    std::map<std::string, meaning> names;
};

struct decoder {
    module &m;
    kernel &k;
    scope *in = nullptr;
    std::map<std::string, uint32_t> labels;
    std::vector<std::pair<size_t, std::string>> jumps;  // instruction, label
    std::map<std::pair<uint64_t, bool>, uint32_t> constants;
    int line = 0, calls = 0;
    std::string prefix;  // of labels
    size_t dynamic = none;
    uint32_t carry = 0;
    bool effects = profile_file() != nullptr;

    [[noreturn]] void wrong(const char *what, const std::string &name) {
        judge_fault("%s:%d: %s: %s", m.file.c_str(), line, what, name.c_str());
    }

    uint32_t place(const std::string &type) {
        size_t bytes = type == "pred" ? 4 : type_bytes(type) == 8 ? 8 * lanes : 4 * lanes;
        size_t align = type == "pred" ? 4 : 64;
        k.frame = (k.frame + align - 1) / align * align;
        k.frame += bytes;
        return (uint32_t)(k.frame - bytes);
    }

    uint32_t constant_at(uint64_t value, bool wide) {
        value = wide ? value : (uint32_t)value;
        auto [at, fresh] = constants.insert({{value, wide}, 0});
        if (fresh) {
            at->second = place(wide ? "b64" : "b32");
            k.constants.push_back({at->second, wide, value});
        }
        return at->second;
    }

    static uint64_t after(size_t &total, const declaration &d) {
        total = (total + d.align - 1) / d.align * d.align;
        total += d.bytes;
        return total - d.bytes;
    }

    meaning variable(const declaration &d) {
        meaning v;
        v.variable = true;
        v.type = d.type;
        if (d.space == ".shared" && d.array && d.bytes == 0) {
            v.where = space::shared;  // after all others, once these are known
            v.address = dynamic;
            k.dynamic_align = std::max(k.dynamic_align, d.align);
        } else if (d.space == ".shared") {
            v.where = space::shared;
            v.address = shared_window + after(k.shared, d);
        } else if (d.space == ".local" || d.space == ".param") {
            v.where = space::local;
            v.address = after(k.local, d);
        } else {
            v.where = space::global;
            v.address = (uint64_t)m.memory[d.name].data();
        }
        return v;
    }

    void declare(const declaration &d) {
        if (d.space == ".reg") {
            meaning v;
            v.type = d.type;
            v.ranged = d.ranged;
            in->names[d.name] = v;
            return;
        }
        in->names[d.name] = variable(d);
    }

    // A register of a range gets a meaning of its own when it is met.
    meaning *of_range(scope *s, const std::string &name) {
        size_t digits = name.size();
        while (digits > 1 && isdigit((unsigned char)name[digits - 1])) {
            digits--;
        }
        auto found = s->names.find(name.substr(0, digits));
        if (digits == name.size() || found == s->names.end() || !found->second.ranged) {
            return nullptr;
        }
        meaning v = found->second;
        v.ranged = false;
        return &(s->names[name] = v);
    }

    meaning &find(const std::string &name) {
        scope *last = nullptr;
        for (scope *s = in; s; last = s, s = s->outer) {
            auto found = s->names.find(name);
            meaning *v = found != s->names.end() ? &found->second : of_range(s, name);
            if (v) {
                if (!v->variable && v->place == none) {
                    v->place = place(v->type);
                }
                return *v;
            }
        }
        auto global = m.variables.find(name);
        if (global != m.variables.end()) {
            return last->names[name] = variable(global->second);
        }
        if (name[0] == '%') {
            meaning v;
            v.type = name == "%clock64" || name == "%globaltimer" ? "b64" : "b32";
            v.place = place(v.type);
            k.specials.push_back({name, v.place});
            return last->names[name] = v;
        }
        wrong("a name that is not declared", name);
    }

    // The place of an operand that an instruction takes as `type`. Before it, `~`: its register may
    // be wider, within 32 bits; `^`: also of 64. Its size is then in `bytes`.
    uint32_t operand_at(const operand &o, const std::string &wanted, uint8_t *bytes = nullptr) {
        const bool within = wanted[0] == '~', any = wanted[0] == '^';
        std::string type = within || any ? wanted.substr(1) : wanted;
        bool wide = type_bytes(type) == 8;
        if (o.kind == operand::number) {
            if (type == "pred") {
                return constant_at(o.value ? ~0ull : 0, false);
            }
            size_t size = type_bytes(type);
            return constant_at(size < 4 ? o.value & ((1ull << 8 * size) - 1) : o.value, wide);
        }
        if (o.kind != operand::name) {
            wrong("an operand that is not known here", o.text);
        }
        if (o.text == "_") {
            return none;
        }
        meaning &v = find(o.text);
        if (v.variable) {
            return constant_at(v.address + o.value, wide);
        }
        size_t needs = type_bytes(type), has = type_bytes(v.type);
        bool fits = type == "pred" || v.type == "pred" ? type == v.type
                    : any                              ? needs <= has
                    : within                           ? needs <= has && (needs == 8) == (has == 8)
                                                       : needs == has;
        if (!fits) {
            wrong(("an operand is not of type " + wanted).c_str(), o.text);
        }
        if (bytes) {
            *bytes = (uint8_t)type_bytes(v.type);
        }
        return v.place;
    }

    void address(const operand &o, inst &i) {
        i.offset = (int64_t)o.value;
        i.base = none;
        if (o.text.empty()) {
            return;
        }
        meaning &v = find(o.text);
        if (v.variable) {
            i.offset += (int64_t)v.address;
            if (i.where == space::param && v.where == space::local) {
                i.where = space::local;
            }
            return;
        }
        i.address_bytes = (uint8_t)type_bytes(v.type);
        if (i.address_bytes != 8 && (i.address_bytes != 4 || i.where != space::shared)) {
            wrong("an address of another size than its space", o.text);
        }
        i.base = v.place;
    }

    void instruction(const statement &s);
    void operands(const statement &s, choice &c, inst &i);
    void copy_operands(const statement &s, inst &i);
    void group(const statement &s, const opcode &op, inst &i);
    void call(const statement &s);
    void body(const function &f, const std::string &label_prefix);
};

bool choose_flow(opcode &op, inst &i, const statement &s) {
    static const std::map<std::string, step> kinds = {
        {"ret", step::leave}, {"exit", step::leave}, {"trap", step::trap}, {"bra", step::branch}};
    auto found = kinds.find(op.base);
    if (found != kinds.end()) {
        i.kind = found->second;
        op.take("uni");
        return true;
    }
    if (op.base == "griddepcontrol") {
        i.kind = op.take("wait") ? step::await : step::trigger;
        op.take("launch_dependents");
        return true;
    }
    if (op.base == "membar" || op.base == "fence") {
        // One thread runs at a time, and sees what those before it have stored; what multiplies by
        // itself does not.
        i.run = [](warp &, const inst &, uint32_t) {
        };
        if (op.whole == "fence.proxy.async" || op.whole == "fence.proxy.async.shared::cta") {
            i.run = show_writes;
        }
        op.parts.clear();
        return s.operands.empty();
    }
    return false;
}

// Operands in order; a vector's parts one after the other.
void decoder::operands(const statement &s, choice &c, inst &i) {
    size_t n = 0, at = 0;
    auto add = [&](const operand &o) {
        if (n == c.types.size()) {
            wrong("more operands than are known here", s.text);
        }
        uint8_t *const bytes[] = {&i.register_bytes, &i.source_bytes};
        i.o[at++] = operand_at(o, c.types[n], n < 2 ? bytes[n] : nullptr);
        n++;
        if (!o.second.empty()) {
            operand q;
            q.text = o.second;
            i.o[19] = operand_at(q, "pred");
        }
        if (o.negated) {
            i.flags |= 0x80;
        }
    };
    i.o[18] = carry;
    i.o[19] = none;
    for (const operand &o : s.operands) {
        if (o.kind == operand::address) {
            continue;
        }
        if (o.kind == operand::vector) {
            for (const operand &p : o.parts) {
                add(p);
            }
        } else {
            add(o);
        }
    }
    if (n != c.types.size()) {
        wrong("fewer operands than are known here", s.text);
    }
}

// [to], [from], bytes, and how many of these are read.
void decoder::copy_operands(const statement &s, inst &i) {
    const operand &from = s.operands[1];
    operand name;
    name.text = from.text;
    i.o[1] = operand_at(name, "b64");
    i.target = (uint32_t)from.value;
    i.o[2] = s.operands.size() > 3 ? operand_at(s.operands[3], "u32") : none;
}

// {d...}, a, b, scale-d, scale-a, scale-b and, of halves, transposed a and b: as the templates have
// them.
void decoder::group(const statement &s, const opcode &op, inst &i) {
    int columns;
    bool fragment;
    if (!choose_group(op, i, columns, fragment)) {
        wrong("an instruction that is not known here", s.text);
    }
    const std::vector<operand> &o = s.operands;
    if (!columns) {
        i.offset = o.empty() ? 0 : (int64_t)o[0].value;
        return;
    }
    bool right = o.size() == (fragment ? 6 : 8) && o[0].kind == operand::vector &&
                 o[0].parts.size() == (size_t)columns / 2 &&
                 (!fragment || (o[1].kind == operand::vector && o[1].parts.size() == 4));
    for (size_t n = 3; right && n < o.size(); n++) {
        right = o[n].kind == operand::number && (n < 6 ? o[n].value == 1 : o[n].value < 2);
    }
    if (!right) {
        wrong("operands that are not known here", s.text);
    }
    std::vector<uint32_t> list;
    touches registers;
    for (const operand &p : o[0].parts) {
        list.push_back(operand_at(p, "f32"));
        registers.writes.push_back(list.back() / 4);
    }
    for (const operand &p : o[1].parts) {
        list.push_back(operand_at(p, "b32"));
        registers.reads.push_back(list.back() / 4);
    }
    k.products.push_back(registers);
    if (!fragment) {
        list.push_back(operand_at(o[1], "b64"));
        i.flags = (uint8_t)(o[6].value | o[7].value << 1);
    }
    list.push_back(operand_at(o[2], "b64"));
    i.target = (uint32_t)k.lists.size();
    k.lists.push_back(list);
}

opcode split(const std::string &text) {
    opcode op;
    op.whole = text;
    size_t from = text.find('.');
    op.base = text.substr(0, from);
    while (from != std::string::npos) {
        size_t to = text.find('.', from + 1);
        op.parts.push_back(text.substr(from + 1, to == std::string::npos ? to : to - from - 1));
        from = to;
    }
    return op;
}

void decoder::instruction(const statement &s) {
    inst i;
    i.line = s.line;
    if (!s.guard.empty()) {
        operand o;
        o.text = s.guard;
        i.guard = operand_at(o, "pred");
        i.guard_negated = s.guard_negated;
    }
    opcode op = split(s.text);
    if (op.base == "call") {
        call(s);
        return;
    }
    if (op.base == "wgmma") {
        group(s, op, i);
        k.code.push_back(i);
        k.effects.push_back({});
        return;
    }
    choice c = {&i, {}};
    bool flow = choose_flow(op, i, s), parts = false;
    for (const operand &o : s.operands) {
        parts = parts || (op.base == "mov" && o.kind == operand::vector);
    }
    const size_t n = s.operands.size();
    const opcode whole = op;
    bool known = flow || (parts && choose_parts(op, c, s)) || choose_memory(op, c, s) ||
                 choose_warp(op, c, s) || choose_convert(op, c, n);
    if (!known) {
        op = whole;
        known = choose_move(op, c, n);
    }
    if (!known) {
        op = whole;
        known = choose_alu(op, c);
    }
    if (!known || !op.done()) {
        wrong("an instruction that is not known here", s.text);
    }
    if (i.kind == step::branch) {
        jumps.push_back({k.code.size(), prefix + s.operands[0].text});
    } else if (!flow) {
        for (const operand &o : s.operands) {
            if (o.kind == operand::address) {
                address(o, i);
                break;
            }
        }
        if (op.base == "cp" && s.operands.size() > 2) {
            copy_operands(s, i);
        } else {
            operands(s, c, i);
        }
        if (i.members != none) {
            i.members = i.o[i.members];
        }
    }
    k.code.push_back(i);
    k.effects.push_back(effects ? effect_of(s, i, c.types.size()) : effect());
}

// The called body in place of the call: its parameters are the caller's variables.
void decoder::call(const statement &s) {
    std::vector<const operand *> results, arguments;
    const function *f = nullptr;
    for (const operand &o : s.operands) {
        if (o.kind != operand::vector) {
            auto found = m.functions.find(o.text);
            f = found == m.functions.end() ? nullptr : &found->second;
            continue;
        }
        for (const operand &p : o.parts) {
            (f ? arguments : results).push_back(&p);
        }
    }
    if (!f || arguments.size() != f->parameters.size() || results.size() != f->results.size() ||
        calls > 100) {
        wrong("a call that is not known here", s.text);
    }
    scope *caller = in;
    scope called = {nullptr, {}};
    for (size_t a = 0; a < arguments.size(); a++) {
        called.names[f->parameters[a].name] = find(arguments[a]->text);
    }
    for (size_t r = 0; r < results.size(); r++) {
        called.names[f->results[r].name] = find(results[r]->text);
    }
    std::string before = prefix;
    in = &called;
    body(*f, before + std::to_string(calls++) + "/");
    prefix = before;
    in = caller;
}

void decoder::body(const function &f, const std::string &label_prefix) {
    prefix = label_prefix;
    bool inlined = !f.entry;
    scope own = {in, {}};
    std::vector<std::unique_ptr<scope>> inner;
    in = &own;
    for (const statement &s : parse_body(m, f)) {
        line = s.line;
        if (s.kind == statement::label) {
            labels[prefix + s.text] = (uint32_t)k.code.size();
        } else if (s.kind == statement::declares) {
            declare(s.declared);
        } else if (s.kind == statement::opens) {
            inner.push_back(std::make_unique<scope>(scope{in, {}}));
            in = inner.back().get();
        } else if (s.kind == statement::closes) {
            in = in->outer;
        } else {
            instruction(s);
            if (inlined && k.code.back().kind == step::leave) {
                k.code.back().kind = step::branch;
                jumps.push_back({k.code.size() - 1, prefix + "end"});
            }
        }
    }
    if (inlined) {
        labels[prefix + "end"] = (uint32_t)k.code.size();
    }
    in = own.outer;
}

// Dynamic shared memory follows what is static, so a first run finds how much that is.
void run(module &m, const function &f, kernel &k, size_t dynamic) {
    k = kernel();
    k.from = &m;
    k.name = f.name;
    k.parameters = f.parameters;
    k.most_threads = f.most_threads;
    k.cluster = f.cluster;
    decoder d = {m, k};
    d.dynamic = dynamic;
    d.effects = d.effects || std::string(f.body, f.end).find("wgmma.mma") != std::string::npos;
    d.carry = d.place("pred");
    scope outermost = {nullptr, {}};
    for (const declaration &p : f.parameters) {
        meaning v;
        v.variable = true;
        v.where = space::param;
        v.address = decoder::after(k.parameter_bytes, p);
        k.parameter_at.push_back((uint32_t)v.address);
        outermost.names[p.name] = v;
    }
    d.in = &outermost;
    d.body(f, "");
    inst end;
    end.kind = step::leave;
    k.code.push_back(end);
    k.effects.emplace_back();
    for (auto &[at, label] : d.jumps) {
        auto found = d.labels.find(label);
        if (found == d.labels.end()) {
            d.wrong("a label that is nowhere", label);
        }
        k.code[at].target = found->second;
    }
    k.frame = (k.frame + 63) / 64 * 64;
    watch_registers(k);
}

}  // namespace

std::unique_ptr<kernel> decode(module &m, const function &f) {
    auto k = std::make_unique<kernel>();
    run(m, f, *k, 1 << 30);
    size_t first = k->shared + k->dynamic_align - 1;
    first = first / k->dynamic_align * k->dynamic_align;
    run(m, f, *k, shared_window + first);
    k->shared = first;
    return k;
}

}  // namespace ptx
