package main

import _ "github.com/dovetail-k8s/dovetail/lab/controlplane/component"

func main() {}
