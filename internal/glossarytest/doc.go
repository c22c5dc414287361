// Package glossarytest checks prose against the vocabulary in docs/glossary.md. Its own tests cover README.md,
// CONTRIBUTING.md, docs, the charts, the Makefile and the comments of Go files; tests of the
// binaries call Load and Check for their help texts.
package glossarytest
