// Package podclass says which pods a scheduler cannot tell apart, so that a plan looks at each kind of pod once.
//
// Key has everything about a pod that decides where it can run: what it requests, and its constraints. Pods with equal
// keys can be exchanged for each other in any plan. What the scheduler does not read, such as images and commands, is not
// in it.
package podclass
