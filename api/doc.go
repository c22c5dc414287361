// Package api is the root of what users write: the Go types of Dovetail's custom resources live in the
// group/version folders below it, their generated CRDs in crds.
package api

//go:generate go tool controller-gen object paths=./...
