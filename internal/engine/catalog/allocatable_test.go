package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

func TestAllocatable(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity corev1.ResourceList
		reserved []corev1.ResourceList
		want     corev1.ResourceList
	}{
		{"all of it", Resources("cpu", "4", "memory", "8Gi"), nil, Resources("cpu", "4", "memory", "8Gi")},
		{
			"reservations add up",
			Resources("cpu", "4", "memory", "8Gi"),
			[]corev1.ResourceList{Resources("cpu", "100m", "memory", "1Gi"), Resources("cpu", "200m", "example.com/x", "1")},
			Resources("cpu", "3700m", "memory", "7Gi"),
		},
		{"never less than nothing", Resources("memory", "1Gi"), []corev1.ResourceList{Resources("memory", "2Gi")}, Resources("memory", "0")},
		{
			"huge pages are taken off memory",
			Resources("memory", "8Gi", "hugepages-2Mi", "2Gi", "hugepages-1Gi", "1Gi"),
			[]corev1.ResourceList{Resources("memory", "1Gi")},
			Resources("memory", "4Gi", "hugepages-2Mi", "2Gi", "hugepages-1Gi", "1Gi"),
		},
		{"as many huge pages as memory", Resources("memory", "4Gi", "hugepages-2Mi", "4Gi"), nil, Resources("memory", "0", "hugepages-2Mi",
			"4Gi")},
		{"more", Resources("memory", "4Gi", "hugepages-2Mi", "5Gi"), nil, Resources("memory", "0", "hugepages-2Mi", "5Gi")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, catalog.Allocatable(c.capacity, c.reserved...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
