package schedulertest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// filters are the plugins with a PreFilter or a Filter in the scheduler's own configuration.
var filters = []string{
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit,
	names.VolumeRestrictions, names.NodeVolumeLimits, names.VolumeBinding, names.VolumeZone, names.PodTopologySpread, names.InterPodAffinity,
	names.NodeDeclaredFeatures, names.DynamicResources,
}

// Scheduler is kube-scheduler's decision about one pod and one node, over the objects of one cluster.
type Scheduler struct {
	framework framework.Framework
	snapshot  *view
	nominated nominator
	devices   *manager
	// state is what OfWorld has shown last.
	state state
	stop  context.CancelFunc
	ctx   context.Context
}

// NewScheduler starts the plugins, with what the profile changes. Objects are by kind: namespaces, volumes, claims and other objects of
// storage. Call Stop at the end.
func NewScheduler(objects map[string][]runtime.Object, of snapshot.SchedulerProfile) (*Scheduler, error) {
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	for i := range defaults.Profiles[0].PluginConfig {
		switch args := defaults.Profiles[0].PluginConfig[i].Args.(type) {
		case *config.NodeAffinityArgs:
			args.AddedAffinity = of.AddedAffinity
		case *config.NodeResourcesFitArgs:
			args.IgnoredResources, args.IgnoredResourceGroups = of.IgnoredResources, of.IgnoredResourceGroups
		}
	}
	set := config.PluginSet{}
	for _, name := range filters {
		set.Enabled = append(set.Enabled, config.Plugin{Name: name})
	}
	factory, err := newFactory(objects)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{snapshot: newView(), nominated: nominator{}, devices: &manager{stop: func() {}}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := s.devices.show(s.ctx, nil, nil, nil); err != nil {
		s.stop()
		return nil, err
	}
	profile := &config.KubeSchedulerProfile{
		SchedulerName: corev1.DefaultSchedulerName,
		Plugins: &config.Plugins{
			QueueSort: config.PluginSet{Enabled: []config.Plugin{{Name: names.PrioritySort}}},
			Bind:      config.PluginSet{Enabled: []config.Plugin{{Name: names.DefaultBinder}}},
			PreFilter: set, Filter: set,
			Reserve: config.PluginSet{Enabled: []config.Plugin{{Name: names.DynamicResources}}},
		},
		PluginConfig: defaults.Profiles[0].PluginConfig,
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload) {
		profile.Plugins.PreEnqueue.Enabled = []config.Plugin{{Name: names.GangScheduling}}
	}
	s.framework, err = frameworkruntime.NewFramework(s.ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(s.snapshot),
		frameworkruntime.WithSharedCSIManager(s.snapshot),
		frameworkruntime.WithPodNominator(s.nominated),
		frameworkruntime.WithSharedDRAManager(s.devices),
	)
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// Stop stops what the plugins have started.
func (s *Scheduler) Stop() {
	s.devices.stop()
	s.stop()
}

// Nominate has pods count on nodes, by name, for pods of their priority and lower ones. Those that were nominated before are no more.
func (s *Scheduler) Nominate(pods map[string][]*corev1.Pod) error {
	clear(s.nominated)
	for node, list := range pods {
		for _, pod := range list {
			info, err := framework.NewPodInfo(pod)
			if err != nil {
				return err
			}
			s.nominated[node] = append(s.nominated[node], info)
		}
	}
	return nil
}

// Filter returns why the scheduler refuses the pod on the node, as "plugin: message"; empty if it accepts it.
func (s *Scheduler) Filter(pod *corev1.Pod, node string) string {
	state := framework.NewCycleState()
	result, status, _ := s.framework.RunPreFilterPlugins(s.ctx, state, pod)
	if !status.IsSuccess() {
		return refusal(status)
	}
	if !result.AllNodes() && !result.NodeNames.Has(node) {
		return "PreFilter: another node"
	}
	info, err := s.snapshot.NodeInfos().Get(node)
	if err != nil {
		return err.Error()
	}
	return refusal(s.framework.RunFilterPluginsWithNominatedPods(s.ctx, state, pod, info))
}

func refusal(status *fwk.Status) string {
	if status.IsSuccess() {
		return ""
	}
	return fmt.Sprintf("%s: %s", status.Plugin(), status.Message())
}

// nominator has the pods that are nominated, by node.
type nominator map[string][]fwk.PodInfo

func (n nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}

func (n nominator) DeleteNominatedPodIfExists(*corev1.Pod) {}

func (n nominator) UpdateNominatedPod(klog.Logger, *corev1.Pod, fwk.PodInfo) {}

func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo { return n[node] }
