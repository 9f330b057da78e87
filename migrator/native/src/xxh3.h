/* libxxhash, compiled in. */
#ifndef MIGRATOR_XXH3_H
#define MIGRATOR_XXH3_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#if XXH_VERSION_NUMBER < 800
#error "libxxhash 0.8 or newer is needed: XXH3 had other values before"
#endif

#endif
