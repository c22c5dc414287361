package wording

import (
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// volume returns why a volume claim cannot be used.
func volume(v *rejection.VolumeClaim) Clause {
	return clause(None, "volume claim %q %s", v.Name, volumeCause(v))
}

func volumeCause(v *rejection.VolumeClaim) string {
	switch v.Cause {
	case rejection.ClaimMissing:
		return "does not exist"
	case rejection.ClaimDeleting:
		return "is being deleted"
	case rejection.ClaimLost:
		return "has lost its volume"
	case rejection.ClaimOfAnother:
		return "has the name of the pod's ephemeral volume but was not made for the pod: it can start once that claim is deleted"
	case rejection.ClaimInUse:
		return fmt.Sprintf("has access mode ReadWriteOncePod, and pod %q uses it or is planned to; the pod waits until that one is gone", v.Pod)
	case rejection.VolumeMissing:
		return fmt.Sprintf("is bound to volume %q, which does not exist", v.Volume)
	case rejection.NotBoundYet:
		return fmt.Sprintf("is not bound to volume %q yet", v.Volume)
	case rejection.HostGone:
		return fmt.Sprintf("is bound to volume %q, which can only be used on host %q, and no node has that name: its data is lost unless the "+
			"host comes back; delete the claim and its volume to start without it", v.Volume, v.Node)
	case rejection.ForeignDriver:
		return fmt.Sprintf("is provisioned by %q, which does not work on nodes of this cloud", v.Provisioner)
	case rejection.FitsNoNode:
		return "fits no node: " + v.Error
	}
	return classCause(v)
}

// classCause is volumeCause for causes in the storage class.
func classCause(v *rejection.VolumeClaim) string {
	switch v.Cause {
	case rejection.NoClass:
		return "is not bound and names no storage class"
	case rejection.ClassMissing:
		return fmt.Sprintf("names storage class %q, which does not exist", v.Class)
	case rejection.BindsAtOnce:
		return fmt.Sprintf("waits to be bound: storage class %q binds immediately, and the volume's zone decides where the pod can run", v.Class)
	case rejection.NodeGone:
		return fmt.Sprintf("waits for its volume on node %q, which is gone: kube-scheduler looks at other nodes once the provisioner %q has "+
			"removed the annotation %s", v.Node, v.Provisioner, v.Annotation)
	case rejection.NoneFree:
		return fmt.Sprintf("is of storage class %q, which makes no volumes, and no volume that exists is free and fits", v.Class)
	case rejection.NoStorage:
		out := fmt.Sprintf("is of storage class %q, and driver %q has published no CSIStorageCapacity of the class that is large enough",
			v.Class, v.Provisioner)
		if v.Error != "" {
			out += ": " + v.Error
		}
		return out
	}
	return fmt.Sprintf("is of storage class %q; its allowed topologies are over %q, a label that nodes of this cloud do not have", v.Class, v.Label)
}

// devices returns why no node has devices for the pod's claims.
func devices(d *rejection.ResourceClaims) Clause {
	switch d.Cause {
	case rejection.NoTypeHasDevices:
		return clause(None, "no instance type of the pool has devices for its resource claims")
	case rejection.NoDevicesKnown:
		return clause(None, "%s, and it is not known of any instance type of the pool that it comes with devices", d.Error)
	case rejection.NotUsableInPool:
		quoted := make([]string, len(d.Names))
		for i, name := range d.Names {
			quoted[i] = fmt.Sprintf("%q", name)
		}
		return clause(None, "the devices that are free for resource claim %s cannot be used on nodes of the pool", all(quoted))
	}
	return Clause{Text: d.Error}
}

// missing returns what no node of the pool has of what the pod needs.
func missing(m *rejection.Missing) Clause {
	switch {
	case m.Feature != "":
		return clause(Pod, "needs a kubelet that declares feature %q, and nodes of the pool are not known to have one: "+
			"their image must have a kubelet that is new enough, with the feature on", m.Feature)
	case m.DaemonSet != "":
		return clause(Pod, "needs CSI driver %q on its node, and DaemonSet %s, which installs it, %s", m.Driver, m.DaemonSet, m.Why)
	}
	return clause(Pod, "needs CSI driver %q on its node, and no initialized node of the pool has it", m.Driver)
}

// bound is which bound of planning the pod exceeds.
func bound(b *rejection.Bound) Clause {
	tooMany := func(what string) Clause {
		return clause(Pod, "has %d %s, and no more than %d are planned; use fewer terms", b.Count, what, b.Most)
	}
	switch b.Of {
	case rejection.HardSpreads:
		return tooMany("topology spread constraints with DoNotSchedule")
	case rejection.RequiredPods:
		return tooMany("terms of required pod affinity")
	case rejection.AntiAffinity:
		return tooMany("topology keys in required pod anti-affinity")
	case rejection.RequiredNodes:
		return clause(None, "of the pod's %d terms of required node affinity only the first %d are considered; use fewer terms", b.Count, b.Most)
	case rejection.ManyTerms:
		return clause(None, "pods of more than %d terms each have more than %d different topology terms, and this pod's are not planned; "+
			"use fewer terms", b.Count, b.Most)
	case rejection.VolumeTopology:
		return clause(None, "the topologies of the pod's volumes combine in more than %d ways", b.Most)
	case rejection.StepsOfPlan:
		return clause(None, "planning stopped before the pod's turn, since this plan had taken all the steps that it may; "+
			"the pod is planned again in the next pass")
	}
	return clause(None, "no node was found for the pod within its share of the steps of a plan, since the terms of its "+
		"affinity and spread need very many; use fewer terms. The pod is planned again when the cluster changes, or after a pause")
}
