package cluster

import (
	"regexp"
	"strconv"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// featuresSince are features that kubelets declare from a minor version of Kubernetes 1 on, unless a user turns them off. Others that
// hold pods back are alpha: kubelets declare them only where a user turns them on.
var featuresSince = map[string]int{"RestartAllContainersOnContainerExits": 36}

// kubeletMinor finds the minor version of the kubelet in the name of an image for EKS, as "amazon-eks-node-al2023-x86_64-standard-1.37-v1".
var kubeletMinor = regexp.MustCompile(`(?:^|-)1\.(\d+)-`)

// KubeletFeatures are the features that the kubelets of all images of the class declare, by the versions in the images' names. A name
// without a version is no evidence for any.
func KubeletFeatures(class *awsv1.EC2NodeClass) (features []string) {
	if class == nil || len(class.Status.AMIs) == 0 {
		return nil
	}
	for feature, since := range featuresSince {
		all := true
		for i := range class.Status.AMIs {
			found := kubeletMinor.FindStringSubmatch(class.Status.AMIs[i].Name)
			minor := 0
			if len(found) > 0 {
				minor, _ = strconv.Atoi(found[1])
			}
			all = all && minor >= since
		}
		if all {
			features = append(features, feature)
		}
	}
	return features
}
