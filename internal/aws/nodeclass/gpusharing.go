package nodeclass

import (
	"fmt"
	"strconv"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// CheckGPUSharing validates the annotation on how claims share a GPU. Without the feature gate DRANVIDIAGPU, every mode
// but the default one makes a class invalid: silently, its GPUs would not be shared.
func CheckGPUSharing(class *awsv1.EC2NodeClass, enabled bool) Problem {
	const key = awsv1.AnnotationNVIDIAConsumableCapacity
	mode := class.Annotations[key]
	switch n, err := strconv.ParseInt(mode, 10, 64); {
	case mode == "" || mode == awsv1.GPUSharingDisabled:
		return Problem{}
	case mode != awsv1.GPUSharingMemory && mode != awsv1.GPUSharingUnlimited && (err != nil || n < 1):
		return Problem{"NVIDIAConsumableCapacityInvalid", fmt.Sprintf(
			"annotation %s: %q is not disabled, memory, unlimited or a number from 1", key, mode)}
	case !enabled:
		return Problem{"DRADisabled", fmt.Sprintf(
			"annotation %s: %q needs the feature gate DRANVIDIAGPU; turn the gate on, or remove the annotation", key, mode)}
	}
	return Problem{}
}
