// Package propertytest tests the engine on random worlds: small clusters with everything in them that the scheduler minds.
//
// Each world is solved, the plan is checked by package validate, and every pod without a home is taken to the slow oracle
// there. A world is drawn from a stream of bytes, so that the same code serves seeded runs, where the bytes come from a
// generator, and Go's fuzzing, where they come from what was found to reach new code. A world that fails is shrunk
// piece by piece before it is printed.
package propertytest
