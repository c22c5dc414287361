// Package docs tests the documentation and the examples of a real cluster: links, Terraform, eksctl, CloudFormation, Argo CD, Flux,
// NodePools, and values of the chart. It also generates the reference pages. It is a module of its own, because only it parses Terraform
// and Markdown.
package docs

//go:generate go run ./generate -root ../..

// Root is the repository, from this directory.
const Root = "../.."
