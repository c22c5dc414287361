// Package propertytest tests the engine on random worlds: small clusters with everything that scheduling depends on.
//
// Each world is solved, package validate checks the plan, and its slow oracle checks every rejected pod. A world is
// generated from a stream of bytes, so that the same code serves seeded runs, with bytes from a generator, and Go's
// fuzzing, with bytes that reach new code. A failing world is shrunk step by step before it is printed.
package propertytest
