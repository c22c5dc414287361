package crdtest

// The patterns and rules of the API by name, as its users know them: identifier, then the exact text. The
// table of examples refers to them, and every pattern and rule of the CustomResourceDefinitions must be here.

var patterns = map[string]string{
	"P_QTY":       `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`,
	"P_QNAME":     `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`,
	"P_LABELVAL":  `^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`,
	"P_DUR":       `^([0-9]+(s|m|h))+$`,
	"P_DURNEVER":  `^(([0-9]+(s|m|h))+|Never)$`,
	"P_BUDGETN":   `^((100|[0-9]{1,2})%|[0-9]+)$`,
	"P_BUDGETDUR": `^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$`,
	"P_CRON":      `^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$`,
	"P_PRICE":     `^\d+(\.\d+)?$`,
	"P_PRICEADJ":  `^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$`,
	"P_CONDTYPE":  `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`,
	"P_REASON":    `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`,
	"P_REASON0":   `^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$`,
	"P_NOSLASH":   `^[^/]*$`,
	"P_SUBNET":    `subnet-[0-9a-z]+`,
	"P_SG":        `sg-[0-9a-z]+`,
	"P_AMI":       `ami-[0-9a-z]+`,
	"P_CR":        `^cr-[0-9a-z]+$`,
	"P_PG":        `^pg-[0-9a-z]+$`,
	"P_ACCT":      `^[0-9]{12}$`,
	"P_VOLSIZE":   `^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$`,
}

var rules = map[string]string{
	"R_REQ_IN":           `self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)`,
	"R_REQ_NOTIN":        `self.all(x, x.operator == 'NotIn' ? x.values.size() != 0 : true)`,
	"R_REQ_CMP":          `self.all(x, (x.operator == 'Gt' || x.operator == 'Lt' || x.operator == 'Gte' || x.operator == 'Lte') ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)`,
	"R_REQ_MINVAL":       `self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)`,
	"R_KEY_DOMAIN":       `self in ["karpenter.sh/capacity-type", "karpenter.sh/nodepool"] || !self.find("^([^/]+)").endsWith("karpenter.sh")`,
	"R_KEY_POOL":         `self != "karpenter.sh/nodepool"`,
	"R_KEY_HOST":         `self != "kubernetes.io/hostname"`,
	"R_LBL_DOMAIN":       `self.all(x, x in ["karpenter.sh/capacity-type", "karpenter.sh/nodepool"] || !x.find("^([^/]+)").endsWith("karpenter.sh"))`,
	"R_LBL_POOL":         `self.all(x, x != "karpenter.sh/nodepool")`,
	"R_LBL_HOST":         `self.all(x, x != "kubernetes.io/hostname")`,
	"R_NONEMPTY":         `self != ''`,
	"R_REF_GROUP":        `self.group == oldSelf.group`,
	"R_REF_KIND":         `self.kind == oldSelf.kind`,
	"R_BUDGETS":          `self.all(x, has(x.schedule) == has(x.duration))`,
	"R_STATIC_MODE":      `has(self.replicas) == has(oldSelf.replicas)`,
	"R_STATIC_LIM":       `!has(self.replicas) || (!has(self.limits) || size(self.limits) == 0 || (size(self.limits) == 1 && 'nodes' in self.limits))`,
	"R_STATIC_WGT":       `!has(self.replicas) || !has(self.weight)`,
	"R_IMMUTABLE":        `self == oldSelf`,
	"R_OVL_PRICE":        `!has(self.price) || !has(self.priceAdjustment)`,
	"R_OVL_CAP":          `self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))`,
	"R_CB_TMPL":          `!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)`,
	"R_CB_ONE":           `!(has(self.podTemplateRef) && has(self.scalableRef))`,
	"A_TAGSEL":           `self.all(k, k != '' && self[k] != '')`,
	"A_SUB_1":            `self.size() != 0`,
	"A_SUB_2":            `self.all(x, has(x.tags) || has(x.id))`,
	"A_SUB_3":            `!self.all(x, has(x.id) && has(x.tags))`,
	"A_SG_1":             `self.size() != 0`,
	"A_SG_2":             `self.all(x, has(x.tags) || has(x.id) || has(x.name))`,
	"A_SG_3":             `!self.all(x, has(x.id) && (has(x.tags) || has(x.name)))`,
	"A_SG_4":             `!self.all(x, has(x.name) && (has(x.tags) || has(x.id)))`,
	"A_CR_1":             `self.all(x, has(x.tags) || has(x.id) || has(x.instanceMatchCriteria))`,
	"A_CR_2":             `!self.all(x, has(x.id) && (has(x.tags) || has(x.ownerID) || has(x.instanceMatchCriteria)))`,
	"A_PG_1":             `has(self.name) || has(self.id)`,
	"A_PG_2":             `!(has(self.name) && has(self.id))`,
	"A_AMI_1":            `self.all(x, has(x.tags) || has(x.id) || has(x.name) || has(x.alias) || has(x.ssmParameter))`,
	"A_AMI_2":            `!self.exists(x, has(x.id) && (has(x.alias) || has(x.tags) || has(x.name) || has(x.owner)))`,
	"A_AMI_3":            `!self.exists(x, has(x.alias) && (has(x.id) || has(x.tags) || has(x.name) || has(x.owner)))`,
	"A_AMI_4":            `!(self.exists(x, has(x.alias)) && self.size() != 1)`,
	"A_ALIAS_1":          `self.matches('^[a-zA-Z0-9]+@.+$')`,
	"A_ALIAS_2":          `self.split('@')[0] in ['al2','al2023','bottlerocket','windows2019','windows2022','windows2025']`,
	"A_ALIAS_3":          `self.split('@')[0] in ['windows2019','windows2022','windows2025'] ? self.split('@')[1] == 'latest' : true`,
	"A_TAGS_1":           `self.all(k, k != '')`,
	"A_TAGS_2":           `self.all(k, k !='eks:eks-cluster-name')`,
	"A_TAGS_3":           `self.all(k, !k.startsWith('kubernetes.io/cluster') )`,
	"A_TAGS_4":           `self.all(k, k != 'karpenter.sh/nodepool')`,
	"A_TAGS_5":           `self.all(k, k !='karpenter.sh/nodeclaim')`,
	"A_TAGS_6":           `self.all(k, k !='karpenter.k8s.aws/ec2nodeclass')`,
	"A_BDM":              `self.filter(x, has(x.rootVolume)?x.rootVolume==true:false).size() <= 1`,
	"A_KUBELET_GC":       `!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent`,
	"A_EBS_1":            `has(self.snapshotID) || has(self.volumeSize)`,
	"A_EBS_2":            `!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')`,
	"A_NIC_1":            `self.size() == 0 || self.exists(x, x.deviceIndex == 0 && x.networkCardIndex == 0 && x.interfaceType == 'interface')`,
	"A_NIC_2":            `self.all(x, self.filter(y, x.networkCardIndex == y.networkCardIndex && x.deviceIndex == y.deviceIndex).size() == 1 && (x.interfaceType != 'efa-only' || self.filter(y, x.networkCardIndex == y.networkCardIndex && y.interfaceType == 'efa-only').size() == 1))`,
	"A_CT":               `has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)`,
	"A_ROLE":             `(has(self.role) && !has(self.instanceProfile)) || (!has(self.role) && has(self.instanceProfile))`,
	"A_FAMREQ":           `self.amiSelectorTerms.exists(x, has(x.alias)) ? true : has(self.amiFamily)`,
	"A_FAM_AL2":          `!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'al2') ? (self.amiFamily == 'Custom' || self.amiFamily == 'AL2') : true)`,
	"A_FAM_AL2023":       `!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'al2023') ? (self.amiFamily == 'Custom' || self.amiFamily == 'AL2023') : true)`,
	"A_FAM_Bottlerocket": `!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'bottlerocket') ? (self.amiFamily == 'Custom' || self.amiFamily == 'Bottlerocket') : true)`,
	"A_FAM_Windows2019":  `!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'windows2019') ? (self.amiFamily == 'Custom' || self.amiFamily == 'Windows2019') : true)`,
	"A_FAM_Windows2022":  `!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'windows2022') ? (self.amiFamily == 'Custom' || self.amiFamily == 'Windows2022') : true)`,
	"A_FAM_Windows2025":  `!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'windows2025') ? (self.amiFamily == 'Custom' || self.amiFamily == 'Windows2025') : true)`,

	"A_KEY":         `self in ` + awsLabels + ` || !self.find("^([^/]+)").endsWith("karpenter.k8s.aws")`,
	"A_KEY_OVERLAY": `self in ` + overlayLabels + ` || !self.find("^([^/]+)").endsWith("karpenter.k8s.aws")`,
	"A_LBL":         `self.all(x, x in ` + awsLabels + ` || !x.find("^([^/]+)").endsWith("karpenter.k8s.aws"))`,
}

// The labels of EC2 that users may constrain.
const (
	instanceTypeLabels = `"karpenter.k8s.aws/instance-category", "karpenter.k8s.aws/instance-generation", ` +
		`"karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-size", "karpenter.k8s.aws/instance-capability-flex", ` +
		`"karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-cpu-manufacturer", ` +
		`"karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz", "karpenter.k8s.aws/instance-memory", ` +
		`"karpenter.k8s.aws/instance-ebs-bandwidth", "karpenter.k8s.aws/instance-network-bandwidth", ` +
		`"karpenter.k8s.aws/instance-hypervisor", "karpenter.k8s.aws/instance-encryption-in-transit-supported", ` +
		`"karpenter.k8s.aws/instance-local-nvme", ` +
		`"karpenter.k8s.aws/instance-gpu-name", "karpenter.k8s.aws/instance-gpu-manufacturer", ` +
		`"karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-gpu-memory", ` +
		`"karpenter.k8s.aws/instance-accelerator-name", "karpenter.k8s.aws/instance-accelerator-manufacturer", ` +
		`"karpenter.k8s.aws/instance-accelerator-count"`
	overlayLabels = `[` + instanceTypeLabels + `, "karpenter.k8s.aws/ec2nodeclass"]`
	awsLabels     = `[` + instanceTypeLabels + `, "karpenter.k8s.aws/instance-tenancy", "karpenter.k8s.aws/capacity-reservation-id", ` +
		`"karpenter.k8s.aws/capacity-reservation-type", "karpenter.k8s.aws/capacity-reservation-interruptible", ` +
		`"karpenter.k8s.aws/placement-group-id", "karpenter.k8s.aws/placement-group-partition", "karpenter.k8s.aws/ec2nodeclass"]`
)
