// Package rollout is what decides how far a roll-out with canaries may go: the waves in which drifted nodes are replaced, and whether the
// pods on new nodes are as healthy as those of the same owners on nodes that are known to work.
package rollout
