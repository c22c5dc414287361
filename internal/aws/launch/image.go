package launch

import (
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// ImageFor is the image that instances of a type are launched from for a class; empty if none of the class's images suits it.
func ImageFor(class *awsv1.EC2NodeClass, t *catalog.InstanceType) (string, error) {
	images, err := imagesOf(class)
	if err != nil {
		return "", err
	}
	id, _ := images.firstFor(t)
	return id, nil
}
