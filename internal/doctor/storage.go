package doctor

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func storageChecks() []Check {
	return []Check{
		{
			ID: "storage-immediate", Area: "storage", Severity: Warning, Title: "a zonal StorageClass binds volumes immediately",
			Why:   "the volume is created in some zone before the scheduler chooses a node; the pod may fit nowhere, or need a second node",
			needs: []Fact{StorageClasses, VolumeClaims}, run: immediateClasses,
		},
		{
			ID: "storage-daemon-toleration", Area: "storage", Severity: Error, Title: "a CSI or CNI daemon does not tolerate the disruption taint",
			Why:   "the daemon is evicted from a disrupted node before its volumes are unmounted; pods elsewhere wait 6 minutes and more for them",
			needs: []Fact{DaemonSets}, run: daemonTolerations,
		},
		{
			ID: "storage-unreachable-volume", Area: "storage", Severity: Warning, Title: "a volume is in a zone in which no NodePool launches",
			Why:   "when its pod loses its node, the pod stays pending forever",
			needs: []Fact{Volumes, NodePools, NodeClasses, InstanceTypes}, run: unreachableVolumes,
		},
		{
			ID: "storage-leftover-attachment", Area: "storage", Severity: Warning, Title: "a VolumeAttachment refers to a node that is gone",
			Why:   "its volume cannot be attached elsewhere until it is deleted",
			needs: []Fact{VolumeAttachments, Nodes}, run: leftoverAttachments,
		},
	}
}

// zonal are the provisioners of zonal volumes.
var zonal = []string{"ebs.csi.aws.com", "kubernetes.io/aws-ebs", "ebs.csi.eks.amazonaws.com"}

func immediateClasses(f *Facts) (out []Finding) {
	for i := range f.StorageClasses {
		c := &f.StorageClasses[i]
		if !slices.Contains(zonal, c.Provisioner) ||
			(c.VolumeBindingMode != nil && *c.VolumeBindingMode != storagev1.VolumeBindingImmediate) {
			continue
		}
		var risk []string
		for j := range f.VolumeClaims {
			pvc := &f.VolumeClaims[j]
			if pvc.Spec.StorageClassName != nil && *pvc.Spec.StorageClassName == c.Name {
				risk = append(risk, pvc.Namespace+"/"+pvc.Name)
			}
		}
		seen := "volumeBindingMode is Immediate"
		if len(risk) > 0 {
			seen += "; used by PersistentVolumeClaims " + few(risk)
		}
		replace := fmt.Sprintf(
			"kubectl get storageclass %s -o yaml | sed 's/^volumeBindingMode:.*/volumeBindingMode: WaitForFirstConsumer/' | kubectl replace --force -f -",
			c.Name,
		)
		out = append(out, Finding{
			Object: "StorageClass " + c.Name, Seen: seen,
			Remedy: "the mode is immutable, but you can recreate the class, and its volumes stay: " + replace, Command: replace,
		})
	}
	return out
}

// few lists the first of many names.
func few(names []string) string {
	const shown = 5
	slices.Sort(names)
	if rest := len(names) - shown; rest > 0 {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", rest)
	}
	return strings.Join(names, ", ")
}

// unmounters are daemons, by a part of their name, that must run while a node's volumes are unmounted.
var unmounters = []string{
	"ebs-csi-node",
	"efs-csi-node",
	"fsx-csi-node",
	"s3-csi-node",
	"csi-node",
	"aws-node",
	"kube-proxy",
	"cilium",
	"calico-node",
}

// isUnmounter reports whether a DaemonSet must run while a node's volumes are unmounted: a CSI driver, or the network.
func isUnmounter(d *appsv1.DaemonSet) bool {
	if slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(c.Image, "node-driver-registrar") || strings.Contains(c.Name, "node-driver-registrar")
	}) {
		return true
	}
	return slices.ContainsFunc(unmounters, func(part string) bool {
		return d.Name == part || strings.HasPrefix(d.Name, part+"-") || strings.HasSuffix(d.Name, "-"+part) ||
			strings.Contains(d.Name, "-"+part+"-")
	}) && !strings.Contains(d.Name, "windows")
}

func daemonTolerations(f *Facts) (out []Finding) {
	taint := corev1.Taint{Key: karpv1.TaintKeyDisrupted, Effect: corev1.TaintEffectNoSchedule}
	for i := range f.DaemonSets {
		d := &f.DaemonSets[i]
		if !isUnmounter(d) || snapshot.Tolerates(d.Spec.Template.Spec.Tolerations, &taint) {
			continue
		}
		patch := fmt.Sprintf(
			`kubectl -n %s patch daemonset %s --type json -p '[%s{"op":"add","path":"/spec/template/spec/tolerations/-","value":{"key":"%s","operator":"Exists"}}]'`,
			d.Namespace,
			d.Name,
			emptyList(d),
			taint.Key,
		)
		out = append(out, Finding{
			Object: "DaemonSet " + d.Namespace + "/" + d.Name, Seen: fmt.Sprintf("it does not tolerate %s:%s", taint.Key, taint.Effect),
			Remedy: patch, Command: patch,
		})
	}
	return out
}

// emptyList returns the operation that creates the list of tolerations if there is none.
func emptyList(d *appsv1.DaemonSet) string {
	if len(d.Spec.Template.Spec.Tolerations) > 0 {
		return ""
	}
	return `{"op":"add","path":"/spec/template/spec/tolerations","value":[]},`
}

func unreachableVolumes(f *Facts) (out []Finding) {
	reachable := map[string]bool{}
	for i := range f.NodePools {
		p := &f.NodePools[i]
		for _, t := range f.allowed(p) {
			for _, o := range t.Offerings {
				reachable[o.Zone] = reachable[o.Zone] || f.zoneAllowed(p, o.Zone)
			}
		}
	}
	if len(reachable) == 0 {
		return nil // nothing can be launched at all, which other checks report
	}
	for i := range f.Volumes {
		v := &f.Volumes[i]
		zones := volumeZones(v)
		if v.Status.Phase != corev1.VolumeBound || len(zones) == 0 ||
			slices.ContainsFunc(zones, func(z string) bool { return reachable[z] }) {
			continue
		}
		object := "PersistentVolume " + v.Name
		if c := v.Spec.ClaimRef; c != nil {
			object += " of " + c.Namespace + "/" + c.Name
		}
		out = append(out, Finding{
			Object: object, Seen: "it is in zone " + strings.Join(zones, " or ") + ", in which no NodePool launches",
			Remedy: "select a subnet of that zone in an EC2NodeClass, and allow the zone in a NodePool",
		})
	}
	return out
}

// volumeZones returns the zones in which the volume can be used; none if it can be used in all.
func volumeZones(v *corev1.PersistentVolume) []string {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var out []string
	for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Operator == corev1.NodeSelectorOpIn &&
				slices.Contains([]string{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone, "topology.ebs.csi.aws.com/zone"}, e.Key) {
				out = append(out, e.Values...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func leftoverAttachments(f *Facts) (out []Finding) {
	exists := map[string]bool{}
	for i := range f.Nodes {
		exists[f.Nodes[i].Name] = true
	}
	for i := range f.VolumeAttachments {
		a := &f.VolumeAttachments[i]
		if exists[a.Spec.NodeName] {
			continue
		}
		detach := "kubectl delete volumeattachment " + a.Name
		out = append(out, Finding{
			Object: "VolumeAttachment " + a.Name, Seen: fmt.Sprintf("its node %s is gone", a.Spec.NodeName),
			Remedy: "delete it once the instance is terminated", deletes: ": " + detach, Command: detach,
		})
	}
	return out
}
