// Package recorder is the flight recorder: it keeps what each pass saw and what it decided, so that every decision can be shown
// later, and replayed. The engine is deterministic, so equal inputs give equal decisions.
//
// What is recorded are the objects and facts that a Snapshot is built from, as the difference from the pass before; the calls
// of the engine, each with its other inputs and its result; the decisions, for people; and the steps of their outcome.
// Secrets, environment and commands never enter the record: objects are reduced like those of `dovetail snapshot`.
//
// Recording stops no decision. A pass only notes which objects have changed; encoding and writing happen behind a bounded queue,
// and what does not fit is dropped and counted. A decision waits for its own record before it is carried out, for a bounded time.
//
// A recording is one file of bounded size, a ring of frames (see ring). The oldest frames are overwritten first. A frame that is
// damaged, or was being written when the process died, is left out by readers; all others stay readable.
package recorder
