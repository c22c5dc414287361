package manifest

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Scrub reduces an object to what plans depend on, without secrets. It changes the object, and what the object points to.
func Scrub(o client.Object) { scrub(o) }

// ScrubTemplate is Scrub for a pod template that is not part of an object.
func ScrubTemplate(t *corev1.PodTemplateSpec) { scrubTemplate(t) }

// scrub reduces an object to what plans depend on. Pods may contain secrets, so it keeps only the fields listed here:
// no environment, commands, probes, or sources of configuration.
func scrub(o client.Object) {
	scrubMeta(o)
	switch t := o.(type) {
	case *corev1.Pod:
		t.Spec = scrubbedSpec(&t.Spec)
		t.Status = scrubbedStatus(&t.Status)
	case *appsv1.DaemonSet:
		scrubTemplate(&t.Spec.Template)
		t.Status = appsv1.DaemonSetStatus{}
	case *corev1.Service:
		t.Spec, t.Status = corev1.ServiceSpec{Selector: t.Spec.Selector}, corev1.ServiceStatus{}
	case *corev1.ReplicationController:
		if t.Spec.Template != nil {
			scrubTemplate(t.Spec.Template)
		}
		t.Spec = corev1.ReplicationControllerSpec{Replicas: new(int32), Selector: t.Spec.Selector, Template: t.Spec.Template}
		t.Status = corev1.ReplicationControllerStatus{}
	case *appsv1.ReplicaSet:
		scrubTemplate(&t.Spec.Template)
		t.Spec = appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: t.Spec.Selector, Template: t.Spec.Template}
		t.Status = appsv1.ReplicaSetStatus{}
	case *appsv1.Deployment:
		scrubTemplate(&t.Spec.Template)
		t.Spec = appsv1.DeploymentSpec{Replicas: t.Spec.Replicas, Selector: t.Spec.Selector, Template: t.Spec.Template}
		t.Status = appsv1.DeploymentStatus{}
	case *corev1.PodTemplate:
		scrubTemplate(&t.Template)
	case *appsv1.StatefulSet:
		scrubTemplate(&t.Spec.Template)
		t.Spec = appsv1.StatefulSetSpec{Replicas: new(int32), Selector: t.Spec.Selector, Template: t.Spec.Template}
		t.Status = appsv1.StatefulSetStatus{}
	case *corev1.Node:
		t.Status = corev1.NodeStatus{
			Capacity: t.Status.Capacity, Allocatable: t.Status.Allocatable, Conditions: t.Status.Conditions,
			DeclaredFeatures: t.Status.DeclaredFeatures,
		}
	case *awsv1.EC2NodeClass:
		t.Spec.UserData = ""
	case *corev1.PersistentVolume:
		t.Spec.PersistentVolumeSource = scrubbedVolume(t.Spec.PersistentVolumeSource)
	case *storagev1.VolumeAttachment:
		t.Spec.Source.InlineVolumeSpec = nil
		t.Status = storagev1.VolumeAttachmentStatus{Attached: t.Status.Attached}
	case *storagev1.StorageClass:
		t.Parameters = nil
	case *policyv1.PodDisruptionBudget:
		t.Status.DisruptedPods = nil
	case *resourcev1.ResourceClaimTemplate:
		scrubMeta(&t.Spec.ObjectMeta)
		t.Spec.Spec.Devices.Config = nil
	case *resourcev1.ResourceClaim:
		t.Spec.Devices.Config, t.Status.Devices = nil, nil
		if t.Status.Allocation != nil {
			t.Status.Allocation.Devices.Config = nil
		}
	case *resourcev1.DeviceClass:
		t.Spec.Config = nil
	case *resourcev1.DeviceTaintRule:
		t.Status = resourcev1.DeviceTaintRuleStatus{}
	case *schedulingv1beta1.PodGroup:
		t.Spec.WorkloadRef = nil
		for i := range t.Status.Conditions {
			t.Status.Conditions[i].Message = ""
		}
	}
}

// scrubTemplate reduces a template to what shows whether an overriding workload makes the same pods.
func scrubTemplate(t *corev1.PodTemplateSpec) {
	t.Spec = scrubbedSpec(&t.Spec)
	scrubMeta(&t.ObjectMeta)
}

// annotated are the domains of annotations that affect plans.
var annotated = []string{
	"karpenter.sh", "karpenter.k8s.aws", "dovetail.sh", "pv.kubernetes.io", "volume.kubernetes.io", "volume.beta.kubernetes.io",
	"storageclass.kubernetes.io", "controller.kubernetes.io",
}

func scrubMeta(o metav1.Object) {
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.SetSelfLink("")
	kept := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(kept, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return !slices.ContainsFunc(annotated, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
	})
	if len(kept) == 0 {
		kept = nil
	}
	o.SetAnnotations(kept)
}

func scrubbedSpec(s *corev1.PodSpec) corev1.PodSpec {
	out := corev1.PodSpec{
		Affinity: s.Affinity, HostNetwork: s.HostNetwork, HostUsers: s.HostUsers, NodeName: s.NodeName, NodeSelector: s.NodeSelector, OS: s.OS,
		Overhead: s.Overhead, Priority: s.Priority, PriorityClassName: s.PriorityClassName, ResourceClaims: s.ResourceClaims,
		Resources: s.Resources, RestartPolicy: s.RestartPolicy, RuntimeClassName: s.RuntimeClassName, SchedulerName: s.SchedulerName,
		SchedulingGates: s.SchedulingGates, SchedulingGroup: s.SchedulingGroup, PreemptionPolicy: s.PreemptionPolicy,
		TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds, Tolerations: s.Tolerations,
		TopologySpreadConstraints: s.TopologySpreadConstraints,
		Containers:                scrubbedContainers(s.Containers), InitContainers: scrubbedContainers(s.InitContainers),
	}
	for _, v := range s.Volumes {
		kept := corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: v.PersistentVolumeClaim, Ephemeral: scrubbedEphemeral(v.Ephemeral), AWSElasticBlockStore: v.AWSElasticBlockStore,
		}}
		if v.HostPath != nil && strings.Contains(v.HostPath.Path, "/plugins/") { // by it a DaemonSet installs a CSI driver
			kept.HostPath = v.HostPath
		}
		if kept.HostPath != nil || kept.PersistentVolumeClaim != nil || kept.Ephemeral != nil || kept.AWSElasticBlockStore != nil {
			out.Volumes = append(out.Volumes, kept)
		}
	}
	return out
}

func scrubbedEphemeral(s *corev1.EphemeralVolumeSource) *corev1.EphemeralVolumeSource {
	if s == nil || s.VolumeClaimTemplate == nil {
		return s
	}
	template := *s.VolumeClaimTemplate
	scrubMeta(&template.ObjectMeta)
	return &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &template}
}

func scrubbedContainers(list []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range list {
		c := &list[i]
		out = append(out, corev1.Container{
			Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy,
		})
		scrubbed := &out[len(out)-1]
		if snapshot.RestartsAll(c) {
			scrubbed.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
		}
		for _, m := range snapshot.MountsWithOptions(c) {
			scrubbed.VolumeMounts = append(scrubbed.VolumeMounts, corev1.VolumeMount{Name: m.Name, BindMountOptions: m.BindMountOptions})
		}
	}
	return out
}

func scrubbedStatus(s *corev1.PodStatus) corev1.PodStatus {
	out := corev1.PodStatus{
		Phase: s.Phase, NominatedNodeName: s.NominatedNodeName, StartTime: s.StartTime, Resize: s.Resize, Resources: s.Resources,
		AllocatedResources:    s.AllocatedResources,
		ResourceClaimStatuses: s.ResourceClaimStatuses,
		ContainerStatuses:     scrubbedStatuses(s.ContainerStatuses),
		InitContainerStatuses: scrubbedStatuses(s.InitContainerStatuses),
	}
	for _, c := range s.Conditions {
		c.Message = ""
		out.Conditions = append(out.Conditions, c)
	}
	return out
}

func scrubbedStatuses(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range list {
		c := &list[i]
		out = append(out, corev1.ContainerStatus{Name: c.Name, AllocatedResources: c.AllocatedResources, Resources: c.Resources})
	}
	return out
}

// scrubbedVolume keeps what determines where a volume is and which driver attaches it.
func scrubbedVolume(s corev1.PersistentVolumeSource) corev1.PersistentVolumeSource {
	out := corev1.PersistentVolumeSource{AWSElasticBlockStore: s.AWSElasticBlockStore, Local: s.Local, HostPath: s.HostPath, NFS: s.NFS}
	if s.CSI != nil {
		out.CSI = &corev1.CSIPersistentVolumeSource{Driver: s.CSI.Driver, VolumeHandle: s.CSI.VolumeHandle}
	}
	return out
}
