"""`leeway convert`: node groups of eksctl, of Auto Scaling and of EKS become node pools."""
