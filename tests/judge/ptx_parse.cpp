// PTX text to modules, and bodies of functions to statements. A body is parsed when it is wanted.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptx.h"

namespace ptx {

namespace {

struct lexer {
    const char *at, *end;
    int line;
    const char *file;
    std::string token;  // empty at the end

    [[noreturn]] void wrong(const char *what) {
        judge_fault("%s:%d: %s at `%s`", file, line, what, token.c_str());
    }

    void blank() {
        while (at < end) {
            if (*at == '\n') {
                line++;
                at++;
            } else if (isspace((unsigned char)*at)) {
                at++;
            } else if (at[0] == '/' && at + 1 < end && at[1] == '/') {
                while (at < end && *at != '\n') {
                    at++;
                }
            } else {
                return;
            }
        }
    }

    static bool inside(char c) { return isalnum((unsigned char)c) || strchr("_$.%", c); }

    const std::string &next() {
        blank();
        token.clear();
        if (at == end) {
            return token;
        }
        const char *from = at;
        if (*at == '"') {
            at = (const char *)memchr(at + 1, '"', end - at - 1);
            at = at ? at + 1 : end;
        } else if (inside(*at)) {
            while (at < end && (inside(*at) || (at[0] == ':' && at[1] == ':'))) {
                at += *at == ':' ? 2 : 1;
            }
        } else {
            at++;
        }
        return token.assign(from, at - from);
    }

    char peek() {
        blank();
        return at < end ? *at : 0;
    }

    void want(const char *text) {
        if (next() != text) {
            wrong((std::string("wanted `") + text + "`, found other text").c_str());
        }
    }
};

bool is_number(const std::string &s) { return isdigit((unsigned char)s[0]); }

uint64_t number(const std::string &s) {
    if (s.size() == 10 && (s[1] == 'f' || s[1] == 'F')) {
        return strtoull(s.c_str() + 2, nullptr, 16);
    }
    if (s.size() == 18 && (s[1] == 'd' || s[1] == 'D')) {
        return strtoull(s.c_str() + 2, nullptr, 16);
    }
    return strtoull(s.c_str(), nullptr, 0);
}

uint64_t signed_number(lexer &in) {
    bool minus = in.token == "-";
    if (minus) {
        in.next();
    }
    if (in.token.empty() || !is_number(in.token)) {
        in.wrong("wanted a number");
    }
    uint64_t v = number(in.token);
    return minus ? 0 - v : v;
}

void initial_values(lexer &in, declaration &d) {
    in.want("=");
    size_t size = type_bytes(d.type);
    bool braces = in.peek() == '{';
    if (braces) {
        in.next();
    }
    do {
        in.next();
        uint64_t v = signed_number(in);
        d.initial.append((const char *)&v, size);
    } while (in.next() == ",");
    if (braces) {
        in.next();
    }
    d.initial.resize(d.bytes);
}

// After its first word: `.align 4 .b8 name[8]`, to what ends it, which is in `in.token`.
declaration declared(lexer &in, const std::string &where) {
    declaration d;
    d.space = where;
    for (;;) {
        const std::string &t = in.next();
        if (t == ".align") {
            in.next();
            d.align = number(in.token);
        } else if (t == ".ptr") {
            continue;
        } else if (t[0] == '.' && type_bytes(t.substr(1))) {
            d.type = t.substr(1);
        } else if (t == ".pred") {
            d.type = "pred";
        } else if (t == ".global" || t == ".shared" || t == ".const" || t == ".local") {
            continue;  // what a parameter points to
        } else if (t[0] != '.') {
            break;
        } else {
            in.wrong("a declaration that is not known here");
        }
    }
    d.name = in.token;
    d.bytes = type_bytes(d.type);
    if (!d.align) {
        d.align = d.bytes;
    }
    if (in.peek() == '<') {
        in.next();
        in.next();
        in.next();
        d.ranged = true;
    }
    while (in.peek() == '[') {
        in.next();
        d.array = true;
        if (in.next() == "]") {
            d.bytes = 0;
        } else {
            d.bytes *= number(in.token);
            in.want("]");
        }
    }
    if (in.peek() == '=') {
        initial_values(in, d);
    } else {
        in.next();
    }
    return d;
}

std::vector<declaration> list(lexer &in) {
    std::vector<declaration> all;
    in.want("(");
    if (in.peek() == ')') {
        in.next();
        return all;
    }
    do {
        in.want(".param");
        all.push_back(declared(in, ".param"));
    } while (in.token == ",");
    if (in.token != ")") {
        in.wrong("wanted `)`");
    }
    return all;
}

void skip_body(lexer &in, function &f) {
    f.line = in.line;
    f.body = in.at;
    for (int depth = 1; depth;) {
        f.end = in.at;
        const std::string &t = in.next();
        if (t.empty()) {
            in.wrong("a body without an end");
        }
        depth += t == "{" ? 1 : t == "}" ? -1 : 0;
    }
}

void parse_function(lexer &in, module &m, bool entry) {
    function f;
    f.entry = entry;
    if (!entry && in.peek() == '(') {
        f.results = list(in);
    }
    f.name = in.next();
    if (in.peek() == '(') {
        f.parameters = list(in);
    }
    for (;;) {
        const std::string t = in.next();
        if (t == "{") {
            skip_body(in, f);
            m.functions[f.name] = f;
            return;
        }
        if (t == ";") {
            return;
        }
        if (t == ".maxntid" || t == ".reqntid") {
            f.most_threads = 1;
            do {
                in.next();
                f.most_threads *= (unsigned)number(in.token);
            } while (in.peek() == ',' && in.next() == ",");
        } else if (t == ".reqnctapercluster") {
            in.next();
            f.cluster = (unsigned)number(in.token);
            while (in.peek() == ',' && in.next() == ",") {
                in.next();
                if (number(in.token) != 1) {
                    in.wrong("a cluster of more than one dimension");
                }
            }
        } else if (t == ".minnctapersm" || t == ".maxnreg") {
            in.next();
        } else if (t != ".noreturn" && t != ".explicitcluster") {
            in.wrong("a directive that is not known here");
        }
    }
}

}  // namespace

size_t type_bytes(const std::string &type) {
    if (type == "f16x2" || type == "bf16x2" || type == "tf32") {
        return 4;
    }
    if (type == "bf16") {
        return 2;
    }
    if (type.size() < 2 || !strchr("busf", type[0]) || !isdigit((unsigned char)type[1])) {
        return 0;
    }
    char *end;
    unsigned long bits = strtoul(type.c_str() + 1, &end, 10);
    return *end || (bits != 8 && bits != 16 && bits != 32 && bits != 64) ? 0 : bits / 8;
}

void parse_module(module &m) {
    lexer in = {m.text.data(), m.text.data() + m.text.size(), 1, m.file.c_str(), ""};
    while (!in.next().empty()) {
        const std::string t = in.token;
        if (t == ".version" || t == ".address_size") {
            in.next();
        } else if (t == ".target") {
            while (in.next(), in.peek() == ',') {
                in.next();
            }
        } else if (t == ".visible" || t == ".weak" || t == ".extern") {
            continue;
        } else if (t == ".entry" || t == ".func") {
            parse_function(in, m, t == ".entry");
        } else if (t == ".global" || t == ".const" || t == ".shared") {
            declaration d = declared(in, t);
            if (t != ".shared") {
                std::vector<uint64_t> &bytes = m.memory[d.name];
                bytes.resize(d.bytes / 8 + 1);
                memcpy(bytes.data(), d.initial.data(), d.initial.size());
            }
            m.variables[d.name] = d;
        } else {
            in.wrong("a directive that is not known here");
        }
    }
}

namespace {

operand parse_operand(lexer &in);

operand parse_address(lexer &in) {
    operand o;
    o.kind = operand::address;
    in.next();
    if (is_number(in.token)) {
        o.value = number(in.token);
    } else {
        o.text = in.token;
    }
    while (in.next() != "]") {
        if (in.token != "+" && in.token != "-") {
            in.wrong("wanted `]`");
        }
        bool minus = in.token == "-";
        in.next();
        uint64_t v = signed_number(in);
        o.value += minus ? 0 - v : v;
    }
    return o;
}

operand parse_operand(lexer &in) {
    operand o;
    const std::string &t = in.next();
    if (t == "[") {
        return parse_address(in);
    }
    if (t == "{" || t == "(") {
        o.kind = operand::vector;
        do {
            o.parts.push_back(parse_operand(in));
            in.next();
        } while (in.token == ",");
        return o;
    }
    if (t == "!") {
        o.negated = true;
        in.next();
    }
    if (in.token == "-" || is_number(in.token)) {
        o.kind = operand::number;
        o.value = signed_number(in);
        return o;
    }
    o.text = in.token;
    if (in.peek() == '|') {
        in.next();
        o.second = in.next();
    } else if (in.peek() == '+') {
        in.next();
        in.next();
        o.value = signed_number(in);
    }
    return o;
}

bool parse_directive(lexer &in, statement &s, std::vector<statement> &all) {
    const std::string t = in.token;
    if (t == ".pragma" || t == ".loc" || t == ".file") {
        while (in.next() != ";" && t == ".pragma") {
        }
        return true;
    }
    if (t != ".reg" && t != ".shared" && t != ".local" && t != ".param") {
        return false;
    }
    do {
        s.kind = statement::declares;
        std::string type = s.declared.type;
        s.declared = declared(in, t);
        if (s.declared.type.empty()) {
            s.declared.type = type;
            s.declared.bytes = s.declared.align = type_bytes(type);
        }
        all.push_back(s);
    } while (in.token == ",");
    return true;
}

void parse_instruction(lexer &in, statement &s) {
    s.kind = statement::instruction;
    if (in.token == "@") {
        s.guard_negated = in.peek() == '!';
        if (s.guard_negated) {
            in.next();
        }
        s.guard = in.next();
        in.next();
    }
    s.text = in.token;
    if (in.peek() == ';') {
        in.next();
        return;
    }
    do {
        s.operands.push_back(parse_operand(in));
    } while (in.next() == ",");
    if (in.token != ";") {
        in.wrong("wanted `;`");
    }
}

}  // namespace

std::vector<statement> parse_body(const module &m, const function &f) {
    lexer in = {f.body, f.end, f.line, m.file.c_str(), ""};
    std::vector<statement> all;
    while (!in.next().empty()) {
        statement s;
        s.line = in.line;
        if (in.token == "{" || in.token == "}") {
            s.kind = in.token == "{" ? statement::opens : statement::closes;
        } else if (in.token == ";") {
            continue;
        } else if (in.token[0] == '.') {
            if (!parse_directive(in, s, all)) {
                in.wrong("a directive that is not known here");
            }
            continue;
        } else if (in.token != "@" && in.peek() == ':') {
            s.kind = statement::label;
            s.text = in.token;
            in.next();
        } else {
            parse_instruction(in, s);
        }
        all.push_back(s);
    }
    return all;
}

}  // namespace ptx
