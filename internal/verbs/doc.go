// Package verbs is a thin binding of libibverbs, loaded at run time: one Go
// function a C function, errors that name the verb, its errno and the values it
// was given.
//
//	lib, err := verbs.Load()
//	ctx, err := lib.Open("mlx5_0")
//	pd, err := ctx.AllocPD()
//	cq, err := ctx.CreateCQ(256, nil)
//	qp, err := pd.CreateQP(cq, cq, verbs.QPCap{SendWR: 128, Inline: 64}, 16)
//
// Work requests and completions lie in memory that is not Go's, an array of each
// per queue pair and completion queue: [QP.WR] is filled in, [QP.Post] posts a
// chain by one ibv_post_send, [CQ.Poll] reaps a batch by one ibv_poll_cq. Neither
// allocates. Both are called through the function pointers of the device's context,
// as the inline functions of verbs.h do; a test checks the layout of every
// structure against that header.
//
// Nothing here decides anything. A device, its queue pairs and queues are used by
// one goroutine at a time. Without library or device the error is ErrUnsupported
// and says what was looked for and what was found.
package verbs
