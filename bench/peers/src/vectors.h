// Data of the collectives: a block for each pair, and vectors of whole numbers.
static float term(int from, size_t i) { return (float)((from + 1) * (int)((i + filled) % 61)); }

static void fill_bytes(unsigned char *src, unsigned char *dst, size_t size) {
    for (int q = 0; q < pes; q++)
        fill_block(src + q * size, rank, q, size);
    memset(dst, 0, pes * size);
}

static int right_bytes(const unsigned char *dst, size_t size) {
    for (int q = 0; q < pes; q++)
        if (!right_block(dst + q * size, q, rank, size))
            return 0;
    return 1;
}

static void fill_floats(float *src, float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        src[i] = term(rank, i);
    memset(dst, 0, n * sizeof *dst);
}

static int right_floats(const float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (dst[i] != pes * (pes + 1) / 2 * term(0, i))
            return 0;
    return 1;
}

// use_src writes a byte of each cache line of what is sent, use_dst reads one of
// what has arrived: as programs do.
static void use_src(unsigned char *src, size_t size) {
    for (size_t i = 0; i < pes * size; i += 64)
        *(volatile unsigned char *)&src[i] = src[i];
}

static void use_dst(const unsigned char *dst, size_t size) {
    for (size_t i = 0; i < pes * size; i += 64)
        (void)*(volatile const unsigned char *)&dst[i];
}
