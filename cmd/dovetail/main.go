package main

import (
	_ "sigs.k8s.io/controller-runtime"
)

func main() {}
