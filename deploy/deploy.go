// Package deploy holds the manifests that the controller needs in a cluster, besides the CRDs.
package deploy

import _ "embed"

// RBAC is the controller's ServiceAccount (kube-system/dovetail), roles and bindings, as YAML documents.
//
//go:embed rbac.yaml
var RBAC []byte

// ShadowRBAC is the same for the controller in shadow mode (kube-system/dovetail-shadow), which may only read and write its report.
//
//go:embed shadow.yaml
var ShadowRBAC []byte
