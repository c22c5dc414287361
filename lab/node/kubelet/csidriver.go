package kubelet

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ebsDriver is the driver with a controller that the lab has: see package ebs.
	ebsDriver = "ebs.csi.aws.com"
	// attachments is how many volumes a Nitro instance takes beside its network interfaces, with that of its root.
	attachments = 26
	// reserved is how many of them the EBS driver leaves to others by default: the root.
	reserved = 1
)

// csiDriver is the driver of a volume, as far as a node minds.
type csiDriver struct {
	name string
	// attached is true if its volumes are attached before they are mounted.
	attached bool
	// simulated is true if it has no daemon on the node: the lab mounts its volumes in its stead.
	simulated bool
}

// driver finds out about a driver. One without a CSIDriver is not installed in the cluster, and the lab has none but
// that of EBS: its volumes are mounted at once, so that a static volume of EFS or FSx needs nothing.
func (v *volumes) driver(ctx context.Context, name string) (csiDriver, error) {
	out := csiDriver{name: name, attached: true}
	if name == ebsDriver {
		return out, nil
	}
	installed, err := v.cfg.Client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return csiDriver{name: name, simulated: true}, nil
	case err != nil:
		return csiDriver{}, err
	}
	if required := installed.Spec.AttachRequired; required != nil {
		out.attached = *required
	}
	return out, nil
}

// served reports whether the driver of a volume can mount and unmount it now. The lock must be held.
func (v *volumes) served(of *volume) bool { return of.simulated || len(v.plugins[of.name]) > 0 }

// withLimits are drivers with how many volumes they attach. The lock must be held.
func (v *volumes) withLimits(drivers []string) (out []string) {
	for _, d := range drivers {
		if limit := v.limits[d]; limit != nil {
			d = fmt.Sprint(d, " ", *limit)
		}
		out = append(out, d)
	}
	return out
}

// attachLimit is how many volumes a driver attaches to the node, by the flags of its daemon; nil if it reports no
// limit. As in EBS's: --volume-attach-limit decides alone; otherwise it is what the instance takes without --reserved-
// volume-attachments, at least one.
func attachLimit(driver string, daemon *corev1.Pod) *int32 {
	switch limit, set := flagOf(daemon, "volume-attach-limit"); {
	case set && limit > 0:
		return &limit
	case set && limit == 0 || driver != ebsDriver: // 0 is no limit to the kubelet
		return nil
	}
	others := int32(reserved)
	if n, set := flagOf(daemon, "reserved-volume-attachments"); set && n >= 0 {
		others = n
	}
	limit := max(1, attachments-others)
	return &limit
}

// flagOf is the value of a flag in the commands of a pod; false if it has none.
func flagOf(pod *corev1.Pod, name string) (value int32, set bool) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		words := append(append([]string{}, c.Command...), c.Args...)
		for k, word := range words {
			flag, text, given := strings.Cut(word, "=")
			if flag != "--"+name {
				continue
			}
			if !given && k+1 < len(words) {
				text = words[k+1]
			}
			if n, err := strconv.ParseInt(text, 10, 32); err == nil {
				value, set = int32(n), true
			}
		}
	}
	return value, set
}
