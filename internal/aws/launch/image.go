package launch

import (
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// ImageFor returns the image of the class that instances of a type boot; empty if none is compatible.
func ImageFor(class *awsv1.EC2NodeClass, t *catalog.InstanceType) (string, error) {
	images, err := imagesOf(class)
	if err != nil {
		return "", err
	}
	id, _ := images.firstFor(t)
	return id, nil
}
