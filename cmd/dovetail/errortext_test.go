package main

import "testing"

// A name in a manifest that holds escape codes does not clear the screen of anyone who plans with it.
func TestErrorsHaveNoEscapeCodes(t *testing.T) {
	const message = "pods.yaml: Pod \x1b[2J\x1b]0;title\x07\u202eweb\u009b31m is invalid:\n\tspec: \rRequired"
	const want = "pods.yaml: Pod ?[2J?]0;title??web?31m is invalid:\n\tspec: ?Required"
	if got := errorMessage(message); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
