package instancetype

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// podsWithoutENI sets how many pods a kubelet accepts if network interfaces do not limit them: the kubelet's default.
const podsWithoutENI = 110

// Family is the traits of an AMI family's bootstrap that decide what is allocatable.
type Family struct {
	Name string
	OS   corev1.OSName
	// WindowsBuild is the value of node.kubernetes.io/windows-build, "" on Linux.
	WindowsBuild string
	// ENILimitedMemory: the kubelet reserves memory for as many pods as the network supports, even if maxPods is lower.
	ENILimitedMemory bool
	// PodsPerCore is respected.
	PodsPerCore bool
	// ENILimitedPods: the number of pods depends on the network interfaces, else it is 110.
	ENILimitedPods bool
	// EphemeralDevice holds the kubelet's directory; "" if only the AMI knows.
	EphemeralDevice string
	// BlockDevices are used when the node class has none.
	BlockDevices []awsv1.BlockDeviceMapping
}

// FamilyOf returns the traits of an AMI family; unknown families are like Custom.
func FamilyOf(name string) Family {
	switch name {
	case awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023:
		return Family{
			Name: name, OS: corev1.Linux, ENILimitedMemory: true, PodsPerCore: true, ENILimitedPods: true,
			EphemeralDevice: "/dev/xvda", BlockDevices: []awsv1.BlockDeviceMapping{disk("/dev/xvda", 20)},
		}
	case awsv1.AMIFamilyBottlerocket:
		return Family{
			Name: name, OS: corev1.Linux, ENILimitedPods: true,
			EphemeralDevice: "/dev/xvdb", BlockDevices: []awsv1.BlockDeviceMapping{disk("/dev/xvda", 6), disk("/dev/xvdb", 20)},
		}
	case awsv1.AMIFamilyWindows2019:
		return windows(name, "10.0.17763")
	case awsv1.AMIFamilyWindows2022:
		return windows(name, "10.0.20348")
	case awsv1.AMIFamilyWindows2025:
		return windows(name, "10.0.26100")
	}
	return Family{Name: awsv1.AMIFamilyCustom, OS: corev1.Linux, ENILimitedMemory: true, PodsPerCore: true, ENILimitedPods: true}
}

func windows(name, build string) Family {
	return Family{
		Name: name, OS: corev1.Windows, WindowsBuild: build, PodsPerCore: true,
		EphemeralDevice: "/dev/sda1", BlockDevices: []awsv1.BlockDeviceMapping{disk("/dev/sda1", 50)},
	}
}

func disk(device string, gib int64) awsv1.BlockDeviceMapping {
	encrypted, quantity := true, gibibytes(gib)
	return awsv1.BlockDeviceMapping{
		DeviceName: device,
		EBS:        &awsv1.BlockDevice{Encrypted: &encrypted, VolumeType: "gp3", VolumeSize: &quantity},
	}
}

func gibibytes(n int64) resource.Quantity { return *resource.NewQuantity(n<<30, resource.BinarySI) }
