variable "cluster_name" {
  description = "Name of the EKS cluster, which exists: the output cluster_name of the module terraform-aws-modules/eks/aws."
  type        = string
}
