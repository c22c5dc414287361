package main

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/podreport"
)

// explainPod explains the pod NAMESPACE/NAME.
func explainPod(view *inspect.View, name string) (printer, error) {
	namespace, name, _ := strings.Cut(name, "/")
	return podreport.Explain(view, types.NamespacedName{Namespace: namespace, Name: name})
}
