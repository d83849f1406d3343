// onnx_wire.c - checks protobuf bytes before they are unpacked. protobuf-c recurses into nested
// messages and allocates for whatever the bytes announce; after this scan both are bounded.
#include "onnx.h"

enum { MAX_DEPTH = 48 };

// Bytes of structures that unpacking may take, contents of strings and tensors not counted: those
// are bounded by the file.
#define MAX_STRUCTURES ((size_t)256 << 20)

typedef struct {
    const uint8_t *end;
    const ProtobufCMessageDescriptor *type;
    uint64_t seen;  // singular message fields met, by their place in the description
} frame;

typedef struct {
    const uint8_t *start, *at;
    frame stack[MAX_DEPTH];
    int depth;
    size_t cost;
    cli_error *error;
} scanner;

static void *take_memory(void *unused, size_t size) {
    (void)unused;
    return cli_alloc(size);
}

static void give_memory(void *unused, void *memory) {
    (void)unused;
    free(memory);
}

ProtobufCAllocator ox_allocator = {take_memory, give_memory, NULL};

static bool refuse(scanner *s, const char *what) {
    return cli_fail(s->error, CLI_BAD_INPUT, "not an ONNX model: %s at byte %zu", what,
                    (size_t)(s->at - s->start));
}

static bool take_varint(scanner *s, const uint8_t *end, int most, uint64_t *value) {
    *value = 0;
    for (int i = 0; i < most && s->at < end; i++) {
        uint8_t byte = *s->at++;
        *value |= (uint64_t)(byte & 127) << (7 * i);
        if (byte < 128) {
            return true;
        }
    }
    return refuse(s, "cut or overlong number");
}

// Room that the next `size` bytes hold is known to be there.
static bool take_payload(scanner *s, frame *top, const ProtobufCFieldDescriptor *field,
                         size_t size) {
    const uint8_t *end = s->at + size;
    if (!field) {
        s->cost += 64;
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessageDescriptor *type = field->descriptor;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            uint64_t bit = (uint64_t)1 << ((size_t)(field - top->type->fields) & 63);
            if (top->seen & bit) {
                return refuse(s, "a part that may be there once is there twice");
            }
            top->seen |= bit;
        }
        if (s->depth == MAX_DEPTH) {
            return refuse(s, "nested too deeply");
        }
        s->cost += type->sizeof_message + 64;
        s->stack[s->depth++] = (frame){end, type, 0};
        return true;
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        s->cost += 64;
        if (memchr(s->at, 0, size)) {
            return refuse(s, "a string with a zero byte");
        }
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        s->cost += 64;
    }
    s->at = end;
    return true;
}

static bool wire_type_fits(const ProtobufCFieldDescriptor *field, unsigned wire) {
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return wire == 2;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        if (wire == 5) return true;
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        if (wire == 1) return true;
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
        if (wire == 0) return true;
        break;
    }
    return wire == 2 && field->label == PROTOBUF_C_LABEL_REPEATED;  // packed
}

static bool scan_field(scanner *s, frame *top) {
    uint64_t tag, size;
    if (!take_varint(s, top->end, 5, &tag)) {
        return false;
    }
    unsigned wire = (unsigned)tag & 7;
    if (tag >> 3 == 0 || tag >> 32) {
        return refuse(s, "a field without number");
    }
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(top->type, (unsigned)(tag >> 3));
    s->cost += 64;  // scanned-member record
    if (s->cost > MAX_STRUCTURES) {
        return refuse(s, "too many parts");
    }
    if (field && !wire_type_fits(field, wire)) {
        return refuse(s, "a field of the wrong type");
    }
    size_t left = (size_t)(top->end - s->at);
    switch (wire) {
    case 0: return take_varint(s, top->end, 10, &size);
    case 1:
    case 5: {
        size_t width = wire == 1 ? 8 : 4;
        if (left < width) {
            return refuse(s, "cut number");
        }
        s->at += width;
        return true;
    }
    case 2:
        if (!take_varint(s, top->end, 5, &size)) {
            return false;
        }
        left = (size_t)(top->end - s->at);
        return size > left ? refuse(s, "a part longer than the rest")
                           : take_payload(s, top, field, (size_t)size);
    default: return refuse(s, "an unknown wire type");
    }
}

bool ox_scan(const uint8_t *data, size_t size, const ProtobufCMessageDescriptor *type,
             cli_error *error) {
    scanner s = {.start = data, .at = data, .depth = 1, .error = error};
    s.stack[0] = (frame){data + size, type, 0};
    while (s.depth) {
        frame *top = &s.stack[s.depth - 1];
        if (s.at == top->end) {
            s.depth--;
        } else if (!scan_field(&s, top)) {
            return false;
        }
    }
    return true;
}

bool ox_unknown(const ProtobufCMessage *m, unsigned tag, size_t *at, const uint8_t **data,
                size_t *size) {
    while (*at < m->n_unknown_fields) {
        const ProtobufCMessageUnknownField *field = &m->unknown_fields[(*at)++];
        if (field->tag != tag || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
            continue;
        }
        size_t prefix = 0;
        while (prefix < field->len && field->data[prefix] >= 128) {
            prefix++;
        }
        if (prefix < field->len) {
            *data = field->data + prefix + 1;
            *size = field->len - prefix - 1;
            return true;
        }
    }
    return false;
}
