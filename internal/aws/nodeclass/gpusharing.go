package nodeclass

import (
	"fmt"
	"strconv"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// CheckGPUSharing validates the annotation on how claims share a GPU. Devices of instance types are not known here, so that every mode
// but the default one makes a class invalid: silently, its GPUs would not be shared.
func CheckGPUSharing(class *awsv1.EC2NodeClass) Problem {
	const key = awsv1.AnnotationNVIDIAConsumableCapacity
	switch mode := class.Annotations[key]; mode {
	case "", "disabled":
		return Problem{}
	default:
		if n, err := strconv.Atoi(mode); mode != "memory" && mode != "unlimited" && (err != nil || n < 1) {
			return Problem{"NVIDIAConsumableCapacityInvalid", fmt.Sprintf(
				"annotation %s: %q is not disabled, memory, unlimited or a number from 1", key, mode)}
		}
		return Problem{"DRADisabled", fmt.Sprintf(
			"annotation %s: %q needs the feature gate DRANVIDIAGPU, which has no effect here; remove the annotation", key, mode)}
	}
}
