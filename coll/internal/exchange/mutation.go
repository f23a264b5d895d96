package exchange

// Mutation spoils the protocol, for tests that show that tests notice.
type Mutation uint8

// The mutations.
const (
	Sound         Mutation = iota
	NoGrants               // sources send without waiting for grants
	TooManyGrants          // relays grant twice as many slots as there are
)

// Mutate is for tests.
func (e *Engine) Mutate(m Mutation) { e.mutation = m }
