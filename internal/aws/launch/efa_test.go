package launch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// An instance has all EFA interfaces of its type if pods request them, as a resource or as devices of a resource claim.
func TestEFAForDevices(t *testing.T) {
	capacity := corev1.ResourceList{awsv1.ResourceEFA: resource.MustParse("4")}
	for _, tt := range []struct {
		name, drivers string
		requests      corev1.ResourceList
		want          int
	}{
		{"nothing", "", nil, 0},
		{"the resource", "", corev1.ResourceList{awsv1.ResourceEFA: resource.MustParse("1")}, 4},
		{"devices of EFA", "dra.net,gpu.nvidia.com", nil, 4},
		{"other devices", "gpu.nvidia.com", nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			claim := &karpv1.NodeClaim{}
			claim.Annotations = map[string]string{karpv1.AnnotationRequestedDRADrivers: tt.drivers}
			claim.Spec.Resources.Requests = tt.requests
			if got := EFAs(claim, &awsv1.EC2NodeClass{}, capacity); got != tt.want {
				t.Errorf("%d EFA interfaces, want %d", got, tt.want)
			}
		})
	}
}
