// Package drain decides the next step of a node's drain: which pods leave now and how, which are waited for and why, and
// whether the instance may go.
package drain
