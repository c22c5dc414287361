// Package deploy holds the manifests that the controller needs in a cluster, besides the CRDs.
package deploy

import _ "embed"

// RBAC is the controller's ServiceAccount (kube-system/dovetail), roles and bindings, as YAML documents.
//
//go:embed rbac.yaml
var RBAC []byte
