// Package bootstrap brings the ranks of one job together and keeps them in touch
// beside the data paths: rendezvous, small allgathers (the exchange of addresses,
// collective allocation, join and close of a world), messages, and the one
// decision of who is lost. It knows nothing of RMA.
//
// # Hub and members
//
// A job has one Hub, held by the launcher or by rank 0's process. A rank takes
// part as a Member: attached in the hub's own process (Hub.Local), or over a
// socket (Dial to a listener given to Hub.Serve). Both behave alike. Connect does
// for a process whatever its Launch asks for: hold the hub or dial one.
//
// The hub never waits for a member, and no member for another's user code: each
// connection has a writer of its own, and messages to one receiver are limited to
// a Window that its consumption refills.
//
// # Loss
//
// A rank is lost when its connection ends without a goodbye, when it was silent
// for the failure deadline, when its launcher says so (Hub.Lost), or when it
// breaks the protocol. The hub decides, once; the decision is told to all ranks,
// the lost one included (its connection is kept for that), and stays: the rank
// may not join again.
//
// Silence is counted in ticks of the watcher's own clock, not in time, and bytes
// that lie unread count as heard. So a hub, or a member, whose process was
// stopped for an hour accuses nobody when it resumes. The member side watches the
// hub by the same rule. A hub that ends, or falls silent, without having closed
// is lost with its holder: EventLost of that rank, or EventHubLost where a
// launcher held it. Should it resume, it is told and its holder finds itself lost.
//
// # Where
//
// A hub listens at a unix socket, or at host:port for ranks of several hosts;
// which of the host's interfaces is chosen, said and settable (ListenAt). Under
// PMI-1 rank 0 tells its address in the launcher's key-value space (Meet).
//
// # Trust
//
// On unix sockets both sides compare the other's user (SO_PEERCRED) with their
// own. Both then prove by HMAC-SHA256 over fresh nonces that they know the job's
// secret, which may be empty only on unix sockets. What follows is neither signed nor
// encrypted. Frames are limited in size,
// decoded strictly and numbered; strangers are refused with a reason where they
// can take one and cannot disturb the job.
//
// # Descriptors and environments
//
// ServeFD and FetchFD pass a file descriptor to another process of the job under
// the same checks. Detect reads a launch from the variables of goshmem run and of
// the launchers of others (sources).
package bootstrap
