package v1

import karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"

// IsEC2NodeClass reports whether ref names an EC2NodeClass. Whatever refers to another kind belongs to
// another controller and is left alone.
func IsEC2NodeClass(ref karpv1.NodeClassReference) bool {
	return ref.Group == Group && ref.Kind == "EC2NodeClass"
}
