// einnet.c - the unit of the `einnet` program that holds the library's implementation. All memory
// comes from the program's own allocator, which ends the program cleanly when there is none.
#include "cli/cli.h"

#define STBDS_REALLOC(context, memory, size) ((void)(context), cli_realloc(memory, size))
#define STBDS_FREE(context, memory) ((void)(context), free(memory))
#define EIN_REALLOC(memory, size) cli_realloc(memory, size)
#define EIN_FREE(memory) free(memory)
#include <stdlib.h>

#define EINNET_IMPLEMENTATION
#include "cli/cmd.h"
